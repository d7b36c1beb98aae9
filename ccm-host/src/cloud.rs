//! The one way to a provider.
//!
//! Controllers ask a [`Provider`] for one machine or one balancer at a time, in plain values; that questions travel in
//! batches, with deadlines, limits, spans and metrics, and that answers are checked before anybody acts on them, is
//! decided here. What to do with an answer is decided in [`crate::controllers`].

mod batch;
mod check;
mod error;
#[cfg(test)]
pub(crate) mod fake;
mod instance;
mod limit;
mod load_balancer;
mod method;
mod negotiate;
mod provider;
mod providers;
mod status;
mod wanted;

pub use error::{CloudError, ErrorReason, RetryClass, SLOW_RETRY};
pub use instance::{
    AddressType, Freshness, Instance, InstanceAnswer, InstanceQuery, InstanceState, InstanceView, NodeAddress,
};
pub use load_balancer::{
    BackendSet, DeleteLoadBalancer, Deleted, EnsureLoadBalancer, Ensured, Ingress, IngressPort, LoadBalancer,
    LoadBalancerList, LoadBalancerState, Ownership, SyncState, UpdateLoadBalancer, Updated,
};
pub use provider::{EventType, InProgress, Provider, ProviderEvent, ProviderInfo, ProviderStatus};
pub use providers::{NodeOwner, Providers};
