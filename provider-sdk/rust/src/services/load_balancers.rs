//! What stands before Services of type LoadBalancer.

use async_trait::async_trait;

use crate::proto::{
    BatchUpdateLoadBalancersRequest, BatchUpdateLoadBalancersResponse, DeleteLoadBalancerRequest,
    DeleteLoadBalancerResponse, EnsureLoadBalancerRequest, EnsureLoadBalancerResponse,
    GetLoadBalancerRequest, GetLoadBalancerResponse, ListLoadBalancersRequest, ListLoadBalancersResponse,
};
use crate::{CallContext, Result};

/// What stands before Services of type LoadBalancer. The natural key of a balancer is (cluster uid, service uid).
///
/// Mutations are run to their end even when the caller is gone, unless leadership ends, one at a time for each key: an equal one joins
/// the one that runs, another one is answered CONCURRENT_OPERATION. A revision below the highest accepted one of the same key is
/// refused before a method is called.
#[async_trait]
pub trait LoadBalancers: Send + Sync + 'static {
    /// Reads one balancer. Absence is `LOAD_BALANCER_STATE_ABSENT`, never an error.
    async fn get_load_balancer(
        &self,
        ctx: &CallContext,
        request: GetLoadBalancerRequest,
    ) -> Result<GetLoadBalancerResponse>;

    /// Makes one balancer be as wanted. Idempotent: the same request again leaves one balancer and the same answer.
    ///
    /// Answer `in_progress` for what merely takes long. Store `desired_digest` with the balancer when it was applied
    /// wholly. Never take down what works because a later step failed.
    async fn ensure_load_balancer(
        &self,
        ctx: &CallContext,
        request: EnsureLoadBalancerRequest,
    ) -> Result<EnsureLoadBalancerResponse>;

    /// Gives many balancers new backends; never makes one.
    ///
    /// In: items with a unique service uid each, and an index of a set that is there; items with a stale revision were
    /// answered already and are not among them. Out: one result for each service uid.
    async fn batch_update_load_balancers(
        &self,
        ctx: &CallContext,
        request: BatchUpdateLoadBalancersRequest,
    ) -> Result<BatchUpdateLoadBalancersResponse>;

    /// Removes the balancer of a Service with all that was made for it, from its natural key alone. Absence is OK.
    async fn delete_load_balancer(
        &self,
        ctx: &CallContext,
        request: DeleteLoadBalancerRequest,
    ) -> Result<DeleteLoadBalancerResponse>;

    /// One page of this cluster's balancers. In: `page_size` is between 1 and `Limits.max_page_size`.
    async fn list_load_balancers(
        &self,
        ctx: &CallContext,
        request: ListLoadBalancersRequest,
    ) -> Result<ListLoadBalancersResponse>;
}
