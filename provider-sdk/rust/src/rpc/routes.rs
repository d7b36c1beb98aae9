//! `Routes` on the wire.

use std::sync::Arc;

use cloudprovider_proto::v1alpha1::routes_server::Routes as Rpc;
use tonic::{Request, Response, Status};

use super::core::Core;
use crate::checks::settle;
use crate::proto::{
    BatchDeleteRoutesRequest, BatchDeleteRoutesResponse, BatchEnsureRoutesRequest, BatchEnsureRoutesResponse,
    ListRoutesRequest, ListRoutesResponse,
};
use crate::services::Routes;

/// Serves `Routes`.
pub(crate) struct RoutesRpc {
    core: Arc<Core>,
    ours: Arc<dyn Routes>,
}

impl RoutesRpc {
    pub(crate) fn new(core: Arc<Core>, ours: Arc<dyn Routes>) -> Self {
        Self { core, ours }
    }
}

#[tonic::async_trait]
impl Rpc for RoutesRpc {
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
            let asked: Vec<String> = request.items.iter().map(|item| item.key.clone()).collect();
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
            let asked: Vec<String> = request.items.iter().map(|item| item.key.clone()).collect();
            let mut answer = ours.batch_delete_routes(&ctx, request).await?;
            settle(&asked, &mut answer.results);
            Ok(answer)
        };
        self.core.mutate(request, run).await
    }
}
