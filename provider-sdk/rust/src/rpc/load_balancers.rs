//! `LoadBalancers` on the wire.

use std::sync::Arc;

use cloudprovider_proto::v1alpha1::load_balancers_server::LoadBalancers as Rpc;
use tonic::{Request, Response, Status};

use super::core::Core;
use crate::checks::{settle, uid_of};
use crate::proto::{
    BatchUpdateLoadBalancersRequest, BatchUpdateLoadBalancersResponse, DeleteLoadBalancerRequest,
    DeleteLoadBalancerResponse, EnsureLoadBalancerRequest, EnsureLoadBalancerResponse,
    GetLoadBalancerRequest, GetLoadBalancerResponse, ListLoadBalancersRequest, ListLoadBalancersResponse,
};
use crate::services::LoadBalancers;

/// Serves `LoadBalancers`.
pub(crate) struct LoadBalancersRpc {
    core: Arc<Core>,
    ours: Arc<dyn LoadBalancers>,
}

impl LoadBalancersRpc {
    pub(crate) fn new(core: Arc<Core>, ours: Arc<dyn LoadBalancers>) -> Self {
        Self { core, ours }
    }
}

#[tonic::async_trait]
impl Rpc for LoadBalancersRpc {
    async fn get_load_balancer(
        &self,
        request: Request<GetLoadBalancerRequest>,
    ) -> Result<Response<GetLoadBalancerResponse>, Status> {
        let run = |ctx, request| async move { self.ours.get_load_balancer(&ctx, request).await };
        self.core.read(request, run).await
    }

    async fn ensure_load_balancer(
        &self,
        request: Request<EnsureLoadBalancerRequest>,
    ) -> Result<Response<EnsureLoadBalancerResponse>, Status> {
        let ours = Arc::clone(&self.ours);
        let run = |ctx, request| async move { ours.ensure_load_balancer(&ctx, request).await };
        self.core.mutate(request, run).await
    }

    async fn batch_update_load_balancers(
        &self,
        request: Request<BatchUpdateLoadBalancersRequest>,
    ) -> Result<Response<BatchUpdateLoadBalancersResponse>, Status> {
        let ours = Arc::clone(&self.ours);
        let run = |ctx, request: BatchUpdateLoadBalancersRequest| async move {
            let asked: Vec<String> =
                request.items.iter().map(|item| uid_of(&item.service).to_owned()).collect();
            let mut answer = ours.batch_update_load_balancers(&ctx, request).await?;
            settle(&asked, &mut answer.results);
            Ok(answer)
        };
        self.core.mutate(request, run).await
    }

    async fn delete_load_balancer(
        &self,
        request: Request<DeleteLoadBalancerRequest>,
    ) -> Result<Response<DeleteLoadBalancerResponse>, Status> {
        let ours = Arc::clone(&self.ours);
        let run = |ctx, request| async move { ours.delete_load_balancer(&ctx, request).await };
        self.core.mutate(request, run).await
    }

    async fn list_load_balancers(
        &self,
        request: Request<ListLoadBalancersRequest>,
    ) -> Result<Response<ListLoadBalancersResponse>, Status> {
        let run = |ctx, request| async move { self.ours.list_load_balancers(&ctx, request).await };
        self.core.read(request, run).await
    }
}
