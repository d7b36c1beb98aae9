//! Everything that talks to the apiserver: one client, slim shared caches, a work queue, minimal patches and
//! low-priority events.
//!
//! In: the kubeconfig and the controllers' decisions. Out: slim [`node::Node`]s and [`service::Service`]s, their
//! changes, and writes with preconditions. Controllers decide what to write; they and the providers' wishes
//! decide which keys to keep.
//!
//! ```text
//! apiserver ──watch──► cache ──Change──► controller ──key──► queue ──► sync
//!     ▲                                                                 │
//!     ├────────────── patch (counted in WritePressure) ◄────────────────┤
//!     └────────────── events (wait while writes press) ◄────────────────┘
//! ```
//!
//! Beside it stand [`election`], which decides whether this replica leads, and [`shadow`], which keeps what is held back in
//! shadow mode and compares it with what another controller manager does. `kube` without `ccm_` is the client library.

pub mod account;
pub mod cache;
pub mod certificate_request;
pub mod client;
pub mod election;
pub mod events;
#[cfg(any(test, feature = "testing"))]
pub mod fixtures;
pub mod keep;
pub mod metrics;
pub mod node;
pub mod patch;
pub mod persistent_volume;
pub mod queue;
pub mod selector;
pub mod service;
pub mod shadow;
mod wire;

pub use cache::{Cache, Change, Slim};
pub use certificate_request::CertificateRequest;
pub use client::ClientOptions;
pub use events::{EventType, EventWriter, Events, Recorder, Regarding};
pub use keep::{Keep, KeySet, Pairs};
pub use metrics::KubeMetrics;
pub use node::{Node, NodeAddress, Taint};
pub use patch::{NodeChange, Patch, WriteError, WritePressure, Writer};
pub use persistent_volume::PersistentVolume;
pub use queue::{Backoff, Outcome, WorkQueue, jittered};
pub use service::{Ingress, ObjectKey, PortStatus, Service, ServicePort, ServiceSpec, TargetPort};
pub use wire::Condition;
