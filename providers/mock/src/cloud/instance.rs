//! Machines, as plain values.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How far a machine is. A machine that is gone is not in the cloud at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    /// Being made.
    Pending,
    /// Runs.
    Running,
    /// Stopped; can be started again.
    Stopped,
    /// On its way out.
    Terminating,
}

/// The type of an address, as Kubernetes spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AddressKind {
    /// A host name.
    Hostname,
    /// An IP within the cluster's network.
    #[serde(rename = "InternalIP")]
    InternalIp,
    /// An IP from outside.
    #[serde(rename = "ExternalIP")]
    ExternalIp,
    /// A name within the cluster's network.
    #[serde(rename = "InternalDNS")]
    InternalDns,
    /// A name from outside.
    #[serde(rename = "ExternalDNS")]
    ExternalDns,
}

/// One address of a machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Address {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: AddressKind,
    /// The IP or name.
    pub address: String,
}

impl Address {
    /// An address of this type.
    #[must_use]
    pub fn new(kind: AddressKind, address: impl Into<String>) -> Self {
        Self { kind, address: address.into() }
    }
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The cloud's id, counted up.
    pub id: String,
    /// `mock://ZONE/ID`; never changes, even when the zone is patched.
    pub provider_id: String,
    /// Name, and name of the Node.
    pub name: String,
    /// Uid of the cluster it belongs to; empty: whichever asks.
    pub cluster_uid: String,
    /// How far it is.
    pub state: InstanceState,
    /// Type, for example `mock.small`.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Region.
    pub region: String,
    /// Addresses in their order.
    pub addresses: Vec<Address>,
    /// Further labels of its node.
    pub labels: BTreeMap<String, String>,
    /// Labels that its node shall lose.
    pub removed_labels: BTreeSet<String>,
    /// Pod CIDRs that the cloud allotted.
    pub pod_cidrs: Vec<String>,
    /// The uuid of its firmware.
    pub system_uuid: String,
    /// When it was made.
    pub created: Timestamp,
    /// When the present state passes into the next by itself.
    pub due: Option<Timestamp>,
}

/// A wish for machines. Everything may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewInstances {
    /// Name of the one machine; not together with `count`.
    pub name: Option<String>,
    /// How many; 1 when left out.
    pub count: Option<u32>,
    /// Name of each, `{}` being its number; `node-{}` when left out.
    pub name_pattern: Option<String>,
    /// The number of the first; 0 when left out.
    pub first: Option<u32>,
    /// Zones, taken in turn; the cloud's own when left out.
    pub zones: Vec<String>,
    /// Type; `mock.small` when left out.
    pub instance_type: Option<String>,
    /// Uid of the cluster; whichever asks when left out.
    pub cluster_uid: Option<String>,
    /// Addresses, only for one machine; made up when left out.
    pub addresses: Option<Vec<Address>>,
    /// Labels of the nodes.
    pub labels: BTreeMap<String, String>,
    /// Only for one machine; made up when left out.
    pub pod_cidrs: Option<Vec<String>>,
    /// Only for one machine; made up when left out.
    pub system_uuid: Option<String>,
    /// How long they are pending, in milliseconds.
    pub boot_ms: Option<u64>,
    /// A second machine of a name is refused unless this is set.
    pub allow_duplicate_name: bool,
}

impl NewInstances {
    /// One machine of this name.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// So many machines, `node-0` and on.
    #[must_use]
    pub fn many(count: u32) -> Self {
        Self { count: Some(count), ..Self::default() }
    }
}

/// A change of a machine. What is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InstancePatch {
    /// All addresses.
    pub addresses: Option<Vec<Address>>,
    /// Labels to set.
    pub labels: BTreeMap<String, String>,
    /// Labels to take away; told to the host as removed.
    pub remove_labels: BTreeSet<String>,
    /// Zone. The provider ID stays.
    pub zone: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// Type.
    pub instance_type: Option<String>,
    /// All pod CIDRs.
    pub pod_cidrs: Option<Vec<String>>,
    /// Uuid of the firmware.
    pub system_uuid: Option<String>,
    /// Uid of the cluster.
    pub cluster_uid: Option<String>,
}
