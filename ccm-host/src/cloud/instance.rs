//! Instances of the cloud, as plain values.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{CloudError, ProviderEvent};
use crate::kube::Node;

/// A query for the instance of one node.
#[derive(Debug, Clone)]
pub struct InstanceQuery {
    /// The node from the cache; only the fields that the provider wants are sent.
    pub node: Arc<Node>,
    pub view: InstanceView,
    /// Maximum age of the answer.
    pub freshness: Freshness,
}

/// How much of an instance is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InstanceView {
    /// Whether it exists, and in which state.
    Existence,
    /// The fields that a Node carries; the provider may leave open whether the instance runs.
    Metadata,
    /// Both, and pod CIDRs.
    All,
}

/// The maximum age of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Freshness {
    /// Read from the cloud now: before anything is deleted, and at first initialisation.
    ReadThrough,
    /// No older than this.
    AtMost(Duration),
}

/// The state of an instance. `InstanceState` in `instances.proto` has the table of what each state leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InstanceState {
    /// Not known: the safe branch.
    Unknown,
    /// Being created.
    Pending,
    Running,
    /// It can be started again.
    Stopped,
    /// Being deleted.
    Terminating,
    /// The provider looked for it and did not find it.
    Absent,
    /// It belongs to another owner.
    NotOwned,
    /// It exists; whether it runs was not asked.
    Exists,
}

/// The answer about one node.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceAnswer {
    pub state: InstanceState,
    /// It comes from the source of truth. Only an authoritative [`InstanceState::Absent`] is evidence.
    pub authoritative: bool,
    pub observed_at: Option<Timestamp>,
    /// Present whenever the provider could describe the instance.
    pub instance: Option<Instance>,
    /// Why the state is unknown or the instance has no description.
    pub error: Option<CloudError>,
    /// Events to write on the Node.
    pub events: Vec<ProviderEvent>,
}

/// An instance. Invalid values from the provider (an address, a label) are already removed; `rejected` names them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Instance {
    /// Never empty.
    pub provider_id: String,
    /// The cloud's name.
    pub name: String,
    /// A valid label value.
    pub instance_type: Option<String>,
    /// In the provider's order, without duplicates.
    pub addresses: Vec<NodeAddress>,
    /// A valid label value.
    pub zone: Option<String>,
    /// A valid label value.
    pub region: Option<String>,
    /// Canonical; at most one per family.
    pub pod_cidrs: Vec<ipnet::IpNet>,
    /// Valid labels outside of reserved namespaces.
    pub labels: BTreeMap<String, String>,
    /// Labels to remove.
    pub removed_labels: Vec<String>,
    /// As the firmware reports it.
    pub system_uuid: Option<String>,
    /// One sentence for each thing dropped from the answer, for an Event on the node.
    pub rejected: Vec<String>,
}

/// The type of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AddressType {
    /// The instance's own host name.
    Hostname,
    /// Reachable within the cluster's network.
    InternalIp,
    /// Reachable from outside.
    ExternalIp,
    /// A name that resolves within the cluster's network.
    InternalDns,
    /// A name that resolves from outside.
    ExternalDns,
}

impl AddressType {
    /// The value of `status.addresses[].type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hostname => "Hostname",
            Self::InternalIp => "InternalIP",
            Self::ExternalIp => "ExternalIP",
            Self::InternalDns => "InternalDNS",
            Self::ExternalDns => "ExternalDNS",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeAddress {
    pub kind: AddressType,
    /// In the cloud's own spelling.
    pub address: String,
}
