//! The load balancers of Services of type LoadBalancer.

use async_trait::async_trait;

use crate::proto::{
    BatchUpdateLoadBalancersRequest, BatchUpdateLoadBalancersResponse, DeleteLoadBalancerRequest,
    DeleteLoadBalancerResponse, EnsureLoadBalancerRequest, EnsureLoadBalancerResponse,
    GetLoadBalancerRequest, GetLoadBalancerResponse, ListLoadBalancersRequest, ListLoadBalancersResponse,
};
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
    /// In: items with unique service uids, and with the index of an existing set; the SDK has already
    /// answered and removed items with a stale revision. Out: one result for each service uid.
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
