//! Routes of the nodes' pod CIDRs.

use async_trait::async_trait;

use crate::proto::{
    BatchDeleteRoutesRequest, BatchDeleteRoutesResponse, BatchEnsureRoutesRequest, BatchEnsureRoutesResponse,
    ListRoutesRequest, ListRoutesResponse,
};
use crate::{CallContext, Result};

/// Routes of the nodes' pod CIDRs. The natural key of a route is (cluster uid, destination CIDR).
///
/// Mutations finish even if the caller is gone.
#[async_trait]
pub trait Routes: Send + Sync + 'static {
    /// One page of this cluster's routes. In: `page_size` is between 1 and `Limits.max_page_size`.
    async fn list_routes(&self, ctx: &CallContext, request: ListRoutesRequest) -> Result<ListRoutesResponse>;

    /// Routes each destination to its target; replaces a route to another target.
    ///
    /// In: items with unique keys and destinations. Out: one result for each key.
    async fn batch_ensure_routes(
        &self,
        ctx: &CallContext,
        request: BatchEnsureRoutesRequest,
    ) -> Result<BatchEnsureRoutesResponse>;

    /// Deletes listed routes; a route whose target has changed since stays, and its result is
    /// `ROUTE_CHANGED`.
    ///
    /// In: items with unique keys. Out: one result for each key.
    async fn batch_delete_routes(
        &self,
        ctx: &CallContext,
        request: BatchDeleteRoutesRequest,
    ) -> Result<BatchDeleteRoutesResponse>;
}
