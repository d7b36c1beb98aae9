//! Load balancers of the cloud, as plain values.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use prost::bytes::Bytes;

use super::{CloudError, InProgress, ProviderEvent};
use crate::kube::{Node, ObjectKey, Service};

/// The nodes behind balancers. Equal digests mean equal sets, whatever the order. Made by
/// [`Provider::backend_set`](super::Provider::backend_set), since a digest covers only the fields that a provider
/// wants.
#[derive(Debug, Clone)]
pub struct BackendSet {
    /// Over the wanted fields of all nodes.
    pub digest: String,
    /// Sorted by name.
    pub nodes: Vec<Arc<Node>>,
    /// Encoded for the wire, with the fields that the digest covers: all calls share it.
    pub encoded: Bytes,
}

/// A request to create a balancer or bring it to its desired state.
#[derive(Debug, Clone)]
pub struct EnsureLoadBalancer {
    /// The Service it is for.
    pub service: Arc<Service>,
    /// May be empty.
    pub backends: Arc<BackendSet>,
    /// From [`Provider::desired_digest`](super::Provider::desired_digest).
    pub desired_digest: String,
    /// Grows with every change of the desired state, also across restarts.
    pub revision: u64,
    /// Take over a balancer that carries only a former controller's name.
    pub adopt: bool,
}

/// The result of an [`EnsureLoadBalancer`].
#[derive(Debug, Clone, PartialEq)]
pub struct Ensured {
    /// The current balancer, possibly unfinished.
    pub load_balancer: LoadBalancer,
    /// Set while the balancer has not reached its desired state.
    pub in_progress: Option<InProgress>,
    /// Events to write on the Service.
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

/// A request to replace the backends of an existing balancer. Batched with those of other Services.
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

/// The result of a successful [`UpdateLoadBalancer`].
#[derive(Debug, Clone, PartialEq)]
pub struct Updated {
    /// Set while the update is in progress.
    pub in_progress: Option<InProgress>,
    /// Events to write on the Service.
    pub events: Vec<ProviderEvent>,
}

#[derive(Debug, Clone)]
pub struct DeleteLoadBalancer {
    /// Namespace and name of the Service.
    pub key: ObjectKey,
    /// Uid of the Service: the natural key.
    pub uid: String,
    /// The Service as last seen: a hint.
    pub last_known: Option<Arc<Service>>,
    /// As for Ensure.
    pub revision: u64,
    /// Also delete a balancer that carries only a former controller's name.
    pub adopt: bool,
}

/// The result of a [`DeleteLoadBalancer`].
#[derive(Debug, Clone, PartialEq)]
pub struct Deleted {
    /// Set until nothing is left.
    pub in_progress: Option<InProgress>,
    /// Events to write on the Service.
    pub events: Vec<ProviderEvent>,
}

/// A balancer as the cloud has it.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadBalancer {
    /// Namespace and name of the Service, as recorded.
    pub key: ObjectKey,
    pub service_uid: String,
    /// The cloud's id; empty when unknown.
    pub id: String,
    /// The cloud's name; empty when unknown.
    pub name: String,
    pub state: LoadBalancerState,
    /// Valid entries; invalid ones from the provider are removed and named in `rejected`.
    pub ingress: Vec<Ingress>,
    /// The digest last applied in full; `None` means unknown.
    pub applied_digest: Option<String>,
    /// Whether the cloud still matches what was applied.
    pub sync_state: SyncState,
    /// How its owner was recognised.
    pub ownership: Ownership,
    /// One sentence for each thing dropped from the answer.
    pub rejected: Vec<String>,
}

impl LoadBalancer {
    /// Whether the cloud shows that the state with this digest is applied.
    pub(super) fn has_applied(&self, digest: &str) -> bool {
        self.state == LoadBalancerState::Active
            && self.sync_state != SyncState::Drifted
            && self.applied_digest.as_deref() == Some(digest)
    }
}

/// Whether a balancer exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadBalancerState {
    /// Nothing is deleted or forgotten on this.
    Unknown,
    /// Being created.
    Pending,
    /// It serves.
    Active,
    /// Being deleted.
    Deleting,
    /// The provider looked for it and did not find it.
    Absent,
    /// It belongs to another owner.
    NotOwned,
}

/// Whether the cloud still matches what was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncState {
    Unknown,
    /// The cloud matches.
    InSync,
    /// Somebody changed it in the cloud.
    Drifted,
}

/// How a balancer was recognised as this cluster's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// Such a balancer is never deleted.
    Unknown,
    /// By the uids of cluster and Service.
    ByUid,
    /// By a former controller's name.
    ByLegacyName,
}

/// One ingress entry of a balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingress {
    /// `None` if the entry has a host name instead.
    pub ip: Option<IpAddr>,
    pub hostname: Option<String>,
    /// `VIP` or `Proxy`; only with an address. An unspecified mode means `VIP`.
    pub ip_mode: Option<&'static str>,
    /// The state of each port.
    pub ports: Vec<IngressPort>,
}

/// The state of one port of a balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressPort {
    /// 1 to 65535.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: &'static str,
    /// `None` means that the port works.
    pub error: Option<String>,
}

/// All balancers of this cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadBalancerList {
    pub load_balancers: Vec<LoadBalancer>,
    /// Everything was listed: no unreachable location, no restarted list, no dropped item, one process epoch.
    pub complete: bool,
    /// Locations that could not be listed, and why.
    pub unreachable: Vec<(String, CloudError)>,
}
