//! A machine of the cloud, as plain values.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{CloudError, ProviderEvent};
use crate::kube::Node;

/// What is asked about the machine of one node.
#[derive(Debug, Clone)]
pub struct InstanceQuery {
    /// The node as the cache has it; only the fields that the provider wants travel.
    pub node: Arc<Node>,
    /// How much is asked.
    pub view: InstanceView,
    /// How old the answer may be.
    pub freshness: Freshness,
}

/// How much of a machine is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InstanceView {
    /// Whether it exists, and in which state.
    Existence,
    /// What stands in a Node; whether the instance runs may be left open.
    Metadata,
    /// Both, and pod CIDRs.
    All,
}

/// How old knowledge may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Freshness {
    /// Read from the cloud now: before anything is deleted, and at first initialisation.
    ReadThrough,
    /// At most so old.
    AtMost(Duration),
}

/// The state of a machine. The table of what each leads to stands at `InstanceState` in `instances.proto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InstanceState {
    /// Not known: the safe branch.
    Unknown,
    /// Being made.
    Pending,
    Running,
    /// It can be started again.
    Stopped,
    /// On its way out.
    Terminating,
    /// It was looked for and is not there.
    Absent,
    /// Somebody else's.
    NotOwned,
    /// It is there; whether it runs was not asked.
    Exists,
}

/// The answer about one node.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceAnswer {
    pub state: InstanceState,
    /// It comes from the place that decides it. Only an authoritative [`InstanceState::Absent`] is evidence.
    pub authoritative: bool,
    /// When it was observed.
    pub observed_at: Option<Timestamp>,
    /// The machine, wherever the provider could describe it.
    pub instance: Option<Instance>,
    /// Why the state is unknown or the machine cannot be described.
    pub error: Option<CloudError>,
    /// To be written on the Node.
    pub events: Vec<ProviderEvent>,
}

/// A machine. What a provider said wrongly (an invalid address or label) is already gone from it; `rejected` names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Instance {
    /// Never empty.
    pub provider_id: String,
    /// The cloud's name.
    pub name: String,
    /// A valid label value.
    pub instance_type: Option<String>,
    /// In the provider's order, no pair twice.
    pub addresses: Vec<NodeAddress>,
    /// A valid label value.
    pub zone: Option<String>,
    /// A valid label value.
    pub region: Option<String>,
    /// Canonical; at most one a family.
    pub pod_cidrs: Vec<ipnet::IpNet>,
    /// Valid labels outside of reserved namespaces.
    pub labels: BTreeMap<String, String>,
    /// Labels that shall go.
    pub removed_labels: Vec<String>,
    /// As the firmware shows it.
    pub system_uuid: Option<String>,
    /// Sentences that name each thing that was dropped from the answer, for an Event on the node.
    pub rejected: Vec<String>,
}

/// The type of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AddressType {
    /// A host name as the machine knows it.
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
    /// The word of `status.addresses[].type`.
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
    /// The cloud's own spelling.
    pub address: String,
}
