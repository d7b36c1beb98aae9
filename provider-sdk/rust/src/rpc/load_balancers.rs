//! `LoadBalancers` on the wire, and the revisions of the wanted state.

use std::sync::Arc;

use cloudprovider_proto::v1alpha1::load_balancers_server::LoadBalancers as Rpc;
use tonic::{Request, Response, Status};

use super::core::Core;
use super::method;
use crate::checks::Revisions;
use crate::proto::{
    BatchUpdateLoadBalancersRequest, BatchUpdateLoadBalancersResponse, DeleteLoadBalancerRequest,
    DeleteLoadBalancerResponse, EnsureLoadBalancerRequest, EnsureLoadBalancerResponse,
    GetLoadBalancerRequest, GetLoadBalancerResponse, ListLoadBalancersRequest, ListLoadBalancersResponse,
    LoadBalancerUpdateResult, Service, ServiceRef, UpdateOutcome,
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
        self.core.read(method::GET_LOAD_BALANCER, request, run).await
    }

    async fn ensure_load_balancer(
        &self,
        request: Request<EnsureLoadBalancerRequest>,
    ) -> Result<Response<EnsureLoadBalancerResponse>, Status> {
        let (core, ours) = (Arc::clone(&self.core), Arc::clone(&self.ours));
        let run = |ctx: crate::CallContext, request: EnsureLoadBalancerRequest| async move {
            core.revisions.accept(ctx.cluster_uid(), uid_of(request.service.as_ref()), request.revision)?;
            ours.ensure_load_balancer(&ctx, request).await
        };
        self.core.mutate(method::ENSURE_LOAD_BALANCER, request, run).await
    }

    async fn batch_update_load_balancers(
        &self,
        request: Request<BatchUpdateLoadBalancersRequest>,
    ) -> Result<Response<BatchUpdateLoadBalancersResponse>, Status> {
        let (core, ours) = (Arc::clone(&self.core), Arc::clone(&self.ours));
        let run = |ctx: crate::CallContext, mut request: BatchUpdateLoadBalancersRequest| async move {
            let stale = take_stale(&core.revisions, ctx.cluster_uid(), &mut request);
            if request.items.is_empty() {
                return Ok(BatchUpdateLoadBalancersResponse { results: stale });
            }
            let mut answer = ours.batch_update_load_balancers(&ctx, request).await?;
            answer.results.extend(stale);
            Ok(answer)
        };
        self.core.mutate(method::BATCH_UPDATE_LOAD_BALANCERS, request, run).await
    }

    async fn delete_load_balancer(
        &self,
        request: Request<DeleteLoadBalancerRequest>,
    ) -> Result<Response<DeleteLoadBalancerResponse>, Status> {
        let (core, ours) = (Arc::clone(&self.core), Arc::clone(&self.ours));
        let run = |ctx: crate::CallContext, request: DeleteLoadBalancerRequest| async move {
            core.revisions.accept(ctx.cluster_uid(), uid(request.service.as_ref()), request.revision)?;
            ours.delete_load_balancer(&ctx, request).await
        };
        self.core.mutate(method::DELETE_LOAD_BALANCER, request, run).await
    }

    async fn list_load_balancers(
        &self,
        request: Request<ListLoadBalancersRequest>,
    ) -> Result<Response<ListLoadBalancersResponse>, Status> {
        let run = |ctx, request| async move { self.ours.list_load_balancers(&ctx, request).await };
        self.core.read(method::LIST_LOAD_BALANCERS, request, run).await
    }
}

fn uid(service: Option<&ServiceRef>) -> &str {
    service.map_or("", |service| service.uid.as_str())
}

fn uid_of(service: Option<&Service>) -> &str {
    uid(service.and_then(|service| service.r#ref.as_ref()))
}

/// Takes the overtaken items out of a batch, and answers them.
fn take_stale(
    revisions: &Revisions,
    cluster: &str,
    request: &mut BatchUpdateLoadBalancersRequest,
) -> Vec<LoadBalancerUpdateResult> {
    let mut stale = Vec::new();
    request.items.retain(|item| {
        let service = uid_of(item.service.as_ref());
        let accepted = revisions.accept(cluster, service, item.revision);
        if let Err(error) = &accepted {
            stale.push(LoadBalancerUpdateResult {
                service_uid: service.to_owned(),
                outcome: UpdateOutcome::NotUpdated.into(),
                error: Some(error.to_item()),
                ..Default::default()
            });
        }
        accepted.is_ok()
    });
    stale
}
