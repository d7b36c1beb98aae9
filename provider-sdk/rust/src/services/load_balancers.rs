//! The load balancers of Services of type LoadBalancer.

use std::sync::Arc;

use async_trait::async_trait;
use cloudprovider_proto::v1alpha1::load_balancers_server::LoadBalancers as Rpc;
use tonic::{Request, Response, Status};

use crate::checks::{Asked, settle, uid_of};
use crate::proto::{
    BatchUpdateLoadBalancersRequest, BatchUpdateLoadBalancersResponse, DeleteLoadBalancerRequest,
    DeleteLoadBalancerResponse, EnsureLoadBalancerRequest, EnsureLoadBalancerResponse,
    GetLoadBalancerRequest, GetLoadBalancerResponse, ListLoadBalancersRequest, ListLoadBalancersResponse,
    LoadBalancerUpdate, ServiceRef,
};
use crate::rpc::Served;
use crate::{CallContext, Result};

/// The load balancers of Services of type LoadBalancer. The natural key of a load balancer is (cluster uid,
/// service uid).
///
/// Mutations finish even if the caller is gone, unless leadership ends. They run one at a time for each key:
/// an identical one joins the running one, any other fails with CONCURRENT_OPERATION. The SDK refuses a
/// revision lower than the highest accepted one of the same key before it calls a method.
#[async_trait]
pub trait LoadBalancers: Send + Sync + 'static {
    /// Reads one load balancer. Absence is `LOAD_BALANCER_STATE_ABSENT`, never an error.
    async fn get_load_balancer(
        &self,
        ctx: &CallContext,
        request: GetLoadBalancerRequest,
    ) -> Result<GetLoadBalancerResponse>;

    /// Creates or changes one load balancer to match the request. Idempotent: the same request again leaves
    /// one load balancer and returns the same response.
    ///
    /// Return `in_progress` for work that merely takes long. Store `desired_digest` with the load balancer
    /// once it is fully applied. Never take down a working load balancer because a later step failed.
    async fn ensure_load_balancer(
        &self,
        ctx: &CallContext,
        request: EnsureLoadBalancerRequest,
    ) -> Result<EnsureLoadBalancerResponse>;

    /// Replaces the backends of many load balancers; never creates one.
    ///
    /// In: items with unique service uids, and the set of backends that all of them get; the SDK has already
    /// answered and removed items with a stale revision, or of a busy Service. Out: one result for each service uid.
    async fn batch_update_load_balancers(
        &self,
        ctx: &CallContext,
        request: BatchUpdateLoadBalancersRequest,
    ) -> Result<BatchUpdateLoadBalancersResponse>;

    /// Deletes the load balancer of a Service with everything created for it, from its natural key alone.
    /// Absence is OK.
    async fn delete_load_balancer(
        &self,
        ctx: &CallContext,
        request: DeleteLoadBalancerRequest,
    ) -> Result<DeleteLoadBalancerResponse>;

    /// One page of this cluster's load balancers. In: `page_size` is between 1 and `Limits.max_page_size`.
    async fn list_load_balancers(
        &self,
        ctx: &CallContext,
        request: ListLoadBalancersRequest,
    ) -> Result<ListLoadBalancersResponse>;
}

#[async_trait]
impl Rpc for Served<dyn LoadBalancers> {
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
            let named = |service: &ServiceRef| format!("{}/{}", service.namespace, service.name);
            let name = |item: &LoadBalancerUpdate| item.service.as_ref()?.r#ref.as_ref().map(named);
            let items = request.items.iter();
            let asked: Asked = items
                .map(|item| (uid_of(&item.service).to_owned(), name(item).unwrap_or_default()))
                .collect();
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
