//! `Instances` on the wire.

use std::sync::Arc;

use cloudprovider_proto::v1alpha1::instances_server::Instances as Rpc;
use futures::stream::BoxStream;
use tonic::{Request, Response, Status};

use super::core::Core;
use super::watch;
use crate::checks::settle;
use crate::proto::{
    AddSshKeyToAllInstancesRequest, AddSshKeyToAllInstancesResponse, BatchGetInstancesRequest,
    BatchGetInstancesResponse, ListInstancesRequest, ListInstancesResponse, WatchInstancesRequest,
    WatchInstancesResponse,
};
use crate::services::Instances;

/// Serves `Instances`.
pub(crate) struct InstancesRpc {
    core: Arc<Core>,
    ours: Arc<dyn Instances>,
}

impl InstancesRpc {
    pub(crate) fn new(core: Arc<Core>, ours: Arc<dyn Instances>) -> Self {
        Self { core, ours }
    }
}

#[tonic::async_trait]
impl Rpc for InstancesRpc {
    async fn batch_get_instances(
        &self,
        request: Request<BatchGetInstancesRequest>,
    ) -> Result<Response<BatchGetInstancesResponse>, Status> {
        let run = |ctx, request: BatchGetInstancesRequest| async move {
            let asked: Vec<String> = request.queries.iter().map(|query| query.key.clone()).collect();
            let mut answer = self.ours.batch_get_instances(&ctx, request).await?;
            settle(&asked, &mut answer.results);
            Ok(answer)
        };
        self.core.read(request, run).await
    }

    async fn watch_instances(
        &self,
        request: Request<WatchInstancesRequest>,
    ) -> Result<Response<BoxStream<'static, Result<WatchInstancesResponse, Status>>>, Status> {
        watch::open(&self.core, &*self.ours, request).await
    }

    async fn list_instances(
        &self,
        request: Request<ListInstancesRequest>,
    ) -> Result<Response<ListInstancesResponse>, Status> {
        let run = |ctx, request| async move { self.ours.list_instances(&ctx, request).await };
        self.core.read(request, run).await
    }

    async fn add_ssh_key_to_all_instances(
        &self,
        request: Request<AddSshKeyToAllInstancesRequest>,
    ) -> Result<Response<AddSshKeyToAllInstancesResponse>, Status> {
        let ours = Arc::clone(&self.ours);
        let run = |ctx, request| async move { ours.add_ssh_key_to_all_instances(&ctx, request).await };
        self.core.mutate(request, run).await
    }
}
