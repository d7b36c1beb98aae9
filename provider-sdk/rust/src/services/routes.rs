//! Routes that lead the pod CIDRs of nodes to the nodes.

use async_trait::async_trait;

use crate::proto::{
    BatchDeleteRoutesRequest, BatchDeleteRoutesResponse, BatchEnsureRoutesRequest, BatchEnsureRoutesResponse,
    ListRoutesRequest, ListRoutesResponse,
};
use crate::{CallContext, Result};

/// Routes that lead the pod CIDRs of nodes to the nodes. The natural key of a route is (cluster uid, destination CIDR).
///
/// Mutations are run to their end even when the caller is gone.
#[async_trait]
pub trait Routes: Send + Sync + 'static {
    /// One page of this cluster's routes. In: `page_size` is between 1 and `Limits.max_page_size`.
    async fn list_routes(&self, ctx: &CallContext, request: ListRoutesRequest) -> Result<ListRoutesResponse>;

    /// Makes each destination lead to its target; a route with a wrong target is replaced.
    ///
    /// In: items with unique keys and destinations. Out: one result for each key.
    async fn batch_ensure_routes(
        &self,
        ctx: &CallContext,
        request: BatchEnsureRoutesRequest,
    ) -> Result<BatchEnsureRoutesResponse>;

    /// Removes routes that were listed; one that was re-pointed since stays and is answered `ROUTE_CHANGED`.
    ///
    /// In: items with unique keys. Out: one result for each key.
    async fn batch_delete_routes(
        &self,
        ctx: &CallContext,
        request: BatchDeleteRoutesRequest,
    ) -> Result<BatchDeleteRoutesResponse>;
}
