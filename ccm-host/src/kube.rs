//! Everything that speaks to the apiserver: one client, slim shared caches, a work queue, minimal
//! patches and low-priority events.
//!
//! In go the kubeconfig and what the controllers decided; out come slim [`node::Node`]s and
//! [`service::Service`]s, changes of them, and writes with preconditions. What to write is decided in
//! [`crate::controllers`]; which keys to keep is decided by them and the providers' wishes.
//!
//! ```text
//! apiserver ──watch──► cache ──Change──► controller ──key──► queue ──► sync
//!     ▲                                                                 │
//!     ├────────────── patch (counted in WritePressure) ◄────────────────┤
//!     └────────────── events (wait while writes press) ◄────────────────┘
//! ```
//!
//! Inside this module `::kube` is the client library and `crate::kube` is this module.

pub mod cache;
pub mod client;
pub mod events;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod keep;
pub mod metrics;
pub mod node;
pub mod pairs;
pub mod patch;
pub mod pressure;
pub mod queue;
pub mod service;
mod wire;

pub use cache::{Cache, Change, Slim};
pub use client::{ClientError, ClientOptions};
pub use events::{EventType, EventWriter, Events, Recorder, Regarding};
pub use keep::{Keep, KeySet};
pub use metrics::KubeMetrics;
pub use node::{Node, NodeAddress, NodeCondition, Taint};
pub use pairs::Pairs;
pub use patch::{NodeChange, Patch, WriteError, Writer};
pub use pressure::WritePressure;
pub use queue::{Backoff, Outcome, WorkQueue};
pub use service::{Ingress, ObjectKey, PortStatus, Service, ServicePort, ServiceSpec, TargetPort};
