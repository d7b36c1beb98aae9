//! A balancer of the cloud, as plain values.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use prost::bytes::Bytes;

use super::{CloudError, InProgress, ProviderEvent};
use crate::kube::{Node, ObjectKey, Service};

/// A set of nodes behind balancers. Equal digests mean equal sets, whatever the order. Made by
/// [`Provider::backend_set`](super::Provider::backend_set), since a digest covers only the fields a provider wants.
#[derive(Debug, Clone)]
pub struct BackendSet {
    /// Over the wanted fields of all nodes.
    pub digest: String,
    /// Sorted by name.
    pub nodes: Vec<Arc<Node>>,
    /// As it travels, with the fields that the digest covers: all calls share it.
    pub encoded: Bytes,
}

/// Make a balancer be as wanted.
#[derive(Debug, Clone)]
pub struct EnsureLoadBalancer {
    /// The Service it is for.
    pub service: Arc<Service>,
    /// May be empty.
    pub backends: Arc<BackendSet>,
    /// From [`Provider::desired_digest`](super::Provider::desired_digest).
    pub desired_digest: String,
    /// Grows with every change of the wanted state, also over restarts.
    pub revision: u64,
    /// Take over a balancer that carries only a former controller's name.
    pub adopt: bool,
}

/// What became of an [`EnsureLoadBalancer`].
#[derive(Debug, Clone, PartialEq)]
pub struct Ensured {
    /// As far as it is.
    pub load_balancer: LoadBalancer,
    /// Set while it is not as wanted yet.
    pub in_progress: Option<InProgress>,
    /// To be written on the Service.
    pub events: Vec<ProviderEvent>,
    /// Annotations to set; only under prefixes that the provider advertised.
    pub annotations: BTreeMap<String, String>,
    /// Annotations to remove; likewise.
    pub removed_annotations: Vec<String>,
    /// Conditions to set, by type; only of types that the provider advertised.
    pub conditions: BTreeMap<String, ServiceCondition>,
}

/// A condition that a provider sets on a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCondition {
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// CamelCase.
    pub reason: String,
    /// For people; may be empty.
    pub message: String,
}

/// Give a balancer that exists other backends. Travels in batches with those of other Services.
#[derive(Debug, Clone)]
pub struct UpdateLoadBalancer {
    /// The Service it is for.
    pub service: Arc<Service>,
    /// May be empty.
    pub backends: Arc<BackendSet>,
    /// As for Ensure.
    pub desired_digest: String,
    /// As for Ensure.
    pub revision: u64,
}

/// What became of an [`UpdateLoadBalancer`] that did not fail.
#[derive(Debug, Clone, PartialEq)]
pub struct Updated {
    /// Set while it takes time.
    pub in_progress: Option<InProgress>,
    /// To be written on the Service.
    pub events: Vec<ProviderEvent>,
}

#[derive(Debug, Clone)]
pub struct DeleteLoadBalancer {
    /// Namespace and name of the Service.
    pub key: ObjectKey,
    /// Its uid: the natural key.
    pub uid: String,
    /// The Service as last seen: a hint.
    pub last_known: Option<Arc<Service>>,
    /// As for Ensure.
    pub revision: u64,
    /// Also a balancer that carries only a former controller's name.
    pub adopt: bool,
}

/// What became of a [`DeleteLoadBalancer`].
#[derive(Debug, Clone, PartialEq)]
pub struct Deleted {
    /// Set while something is left.
    pub in_progress: Option<InProgress>,
    /// To be written on the Service.
    pub events: Vec<ProviderEvent>,
}

/// A balancer as the cloud has it.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadBalancer {
    /// Namespace and name of the Service, as recorded.
    pub key: ObjectKey,
    /// Uid of the Service.
    pub service_uid: String,
    /// The cloud's id; empty when unknown.
    pub id: String,
    /// The cloud's name; empty when unknown.
    pub name: String,
    /// Whether it exists.
    pub state: LoadBalancerState,
    /// Valid ways in; what a provider said wrongly is gone, `rejected` names it.
    pub ingress: Vec<Ingress>,
    /// What was last applied wholly; `None`: not known.
    pub applied_digest: Option<String>,
    /// Whether the cloud still holds it.
    pub sync_state: SyncState,
    /// How it was recognised.
    pub ownership: Ownership,
    /// Sentences that name each thing that was dropped from the answer.
    pub rejected: Vec<String>,
}

/// Whether a balancer exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadBalancerState {
    /// Not known: nothing is deleted, nothing forgotten.
    Unknown,
    /// Being made.
    Pending,
    /// It serves.
    Active,
    /// On its way out.
    Deleting,
    /// It was looked for and is not there.
    Absent,
    /// Somebody else's.
    NotOwned,
}

/// Whether the cloud still holds what was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncState {
    Unknown,
    /// It does.
    InSync,
    /// It was changed behind our back.
    Drifted,
}

/// How a balancer was recognised as this cluster's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// Not known: never deleted.
    Unknown,
    /// By both uids.
    ByUid,
    /// By the name of a former controller.
    ByLegacyName,
}

/// One way into a balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingress {
    /// An address; or else there is a host name.
    pub ip: Option<IpAddr>,
    pub hostname: Option<String>,
    /// `VIP` or `Proxy`; only with an address. A provider that says nothing means `VIP`.
    pub ip_mode: Option<&'static str>,
    /// What became of each port.
    pub ports: Vec<IngressPort>,
}

/// The state of one port of a balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressPort {
    /// 1 to 65535.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: &'static str,
    /// `None`: all is well.
    pub error: Option<String>,
}

/// All balancers of this cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadBalancerList {
    pub load_balancers: Vec<LoadBalancer>,
    /// The walk saw everything: no unreachable part, no restarted token, one process epoch.
    pub complete: bool,
    /// What could not be asked.
    pub unreachable: Vec<(String, CloudError)>,
}
