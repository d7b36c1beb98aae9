//! Everything that talks to a provider.
//!
//! Controllers ask a [`Provider`] for one instance, balancer or route at a time, in plain values. This crate batches
//! the calls, applies deadlines and limits, records spans and metrics, and checks every answer before a controller acts
//! on it.
//!
//! ```text
//! controller ─► Provider ─► instances, load_balancers, … ─► call ─────────────► connection ─► socket
//!                 ▲        (one family of RPCs each)      (batch, limit, rpc) (handshake, session)
//!                 └─ check ◄─ error ◄───────────────────────────────────────────────┘
//! ```
//!
//! Values that several of these need stand below them: `method` (the RPCs), `findings` (what was wrong with an answer),
//! `config` (one provider as it is run), `sent_sets` (which sets of backends a process has).

mod call;
mod check;
mod config;
mod connection;
mod digest;
mod error;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
mod findings;
#[cfg(any(test, feature = "testing"))]
pub mod hostile;
mod instances;
mod inventory;
mod load_balancers;
mod method;
mod metrics;
mod provider;
mod providers;
mod remote;
mod routes;
#[cfg(test)]
mod scripted;
mod sent_sets;
pub mod settings;
mod shadowed;
mod volumes;
mod wanted;

pub use check::{instance::has_instance, label::is_reserved as is_reserved_label};
pub use config::{Dialer, Paces, ProviderConfig};
pub use digest::{
    cover_the_same_backends, covers_backends, differ_in_backends_only, is_for_another_class, joined,
    service_part, with_backends_of,
};
pub use error::{CloudError, ErrorReason};
#[cfg(any(test, feature = "testing"))]
pub use hostile::fuzz;
pub use inventory::Question;
pub use metrics::CloudMetrics;
pub use provider::{
    Accepted, AddressType, BackendSet, ClusterRef, DeleteLoadBalancer, Effects, EnsureLoadBalancer,
    EnsureRoute, Ensured, EnsuredRoute, Family, Freshness, InProgress, Instance, InstanceAddress,
    InstanceAnswer, InstanceQuery, InstanceState, InstanceView, Listed, LoadBalancer, LoadBalancerState,
    Maintenance, MaintenanceKind, Ownership, Provider, ProviderEvent, ProviderInfo, ProviderStatus, Route,
    RouteState, RouteTarget, ServiceCondition, SyncState, UpdateLoadBalancer, VolumeAnswer, VolumeQuery,
    VolumeState,
};
pub use providers::{
    ContestedClass, ContestedPrefix, Division, NodeOwner, PROVIDER_ANNOTATION, Providers, ServiceOwner,
};
pub use remote::RemoteProvider;
pub use settings::{Endpoint, ProviderSettings};
