//! Everything that talks to a provider.
//!
//! Controllers ask a [`Provider`] for one instance, balancer or route at a time, in plain values. This module batches
//! the calls, applies deadlines and limits, records spans and metrics, and checks every answer before anybody acts on
//! it. Acting on an answer is the business of [`crate::controllers`].
//!
//! ```text
//! controller ─► Provider ─► batch ─► limit ─► rpc ─────────► session ─► socket
//!                 ▲        (gather) (permit) (deadline, span) (handshake, one process)
//!                 └─ check ◄─ matching ◄─ status ◄─────────────────────┘
//! ```

mod balancers;
mod batch;
mod check;
mod config;
mod connect;
mod desired;
mod error;
#[cfg(test)]
pub(crate) mod fake;
mod gather;
#[cfg(test)]
pub(crate) mod hostile;
mod instance;
mod instances;
mod inventory;
mod limit;
mod link;
mod load_balancer;
mod method;
mod metrics;
mod negotiate;
mod provider;
mod providers;
mod remote;
mod route;
mod routes;
mod rpc;
#[cfg(test)]
mod scripted;
mod session;
mod sets;
pub mod settings;
mod shadowed;
mod split;
mod ssh_keys;
mod standing;
mod status;
mod updates;
mod volume;
mod volumes;
mod walk;
mod wanted;
mod wishes;

pub use config::{ClusterRef, Paces, ProviderConfig};
pub use connect::Dialer;
pub use desired::{covers_backends, differ_in_backends_only, is_for_another_class, with_backends_of};
pub use error::{CloudError, ErrorReason};
pub use instance::{
    AddressType, Freshness, Instance, InstanceAnswer, InstanceQuery, InstanceState, InstanceView, NodeAddress,
};
pub use inventory::Question;
pub use load_balancer::{
    BackendSet, DeleteLoadBalancer, Deleted, EnsureLoadBalancer, Ensured, Ingress, IngressPort, LoadBalancer,
    LoadBalancerList, LoadBalancerState, Ownership, ServiceCondition, SyncState, UpdateLoadBalancer, Updated,
};
pub use metrics::CloudMetrics;
pub use provider::{InProgress, Provider, ProviderEvent, ProviderInfo, ProviderStatus};
pub use providers::{ContestedClass, Division, NodeOwner, PROVIDER_ANNOTATION, Providers, ServiceOwner};
pub use remote::RemoteProvider;
pub use route::{DeletedRoute, EnsureRoute, EnsuredRoute, Route, RouteList, RouteState, RouteTarget};
pub use settings::{Endpoint, TlsDir};
pub use volume::{VolumeAnswer, VolumeQuery, VolumeState};
pub use wishes::Wishes;
