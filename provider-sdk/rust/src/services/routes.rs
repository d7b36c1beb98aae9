//! Routes of the nodes' pod CIDRs.

use std::sync::Arc;

use async_trait::async_trait;
use cloudprovider_proto::v1alpha1::routes_server::Routes as Rpc;
use tonic::{Request, Response, Status};

use crate::checks::{Asked, settle};
use crate::proto::{
    BatchDeleteRoutesRequest, BatchDeleteRoutesResponse, BatchEnsureRoutesRequest, BatchEnsureRoutesResponse,
    ListRoutesRequest, ListRoutesResponse, RouteToDelete,
};
use crate::rpc::Served;
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

#[async_trait]
impl Rpc for Served<dyn Routes> {
    async fn list_routes(
        &self,
        request: Request<ListRoutesRequest>,
    ) -> Result<Response<ListRoutesResponse>, Status> {
        let run = |ctx, request| async move { self.ours.list_routes(&ctx, request).await };
        self.core.read(request, run).await
    }

    async fn batch_ensure_routes(
        &self,
        request: Request<BatchEnsureRoutesRequest>,
    ) -> Result<Response<BatchEnsureRoutesResponse>, Status> {
        let ours = Arc::clone(&self.ours);
        let run = |ctx, request: BatchEnsureRoutesRequest| async move {
            let items = request.items.iter();
            let asked: Asked = items.map(|item| (item.key.clone(), item.destination_cidr.clone())).collect();
            let mut answer = ours.batch_ensure_routes(&ctx, request).await?;
            settle(&asked, &mut answer.results);
            Ok(answer)
        };
        self.core.mutate(request, run).await
    }

    async fn batch_delete_routes(
        &self,
        request: Request<BatchDeleteRoutesRequest>,
    ) -> Result<Response<BatchDeleteRoutesResponse>, Status> {
        let ours = Arc::clone(&self.ours);
        let run = |ctx, request: BatchDeleteRoutesRequest| async move {
            let name = |item: &RouteToDelete| {
                item.route.as_ref().map_or_else(String::new, |route| route.destination_cidr.clone())
            };
            let asked: Asked = request.items.iter().map(|item| (item.key.clone(), name(item))).collect();
            let mut answer = ours.batch_delete_routes(&ctx, request).await?;
            settle(&asked, &mut answer.results);
            Ok(answer)
        };
        self.core.mutate(request, run).await
    }
}
