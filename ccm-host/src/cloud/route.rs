//! Routes of the cloud, as plain values.

use std::sync::Arc;

use ipnet::IpNet;

use super::{CloudError, InProgress, NodeAddress, ProviderEvent};
use crate::kube::Node;

/// A route as the cloud has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The cloud's id; never empty.
    pub id: String,
    /// Canonical, whatever the provider's spelling.
    pub destination: IpNet,
    /// The node it leads to; `None` means unknown.
    pub target: Option<RouteTarget>,
    /// Whether it carries traffic.
    pub state: RouteState,
    /// It belongs to this cluster, by its own record or because routes cannot record an owner.
    pub ours: bool,
}

/// The node that a route leads to, as the cloud knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteTarget {
    /// Name of the node; may be empty.
    pub name: String,
    /// Uid of the node; may be empty.
    pub uid: String,
    /// Provider ID of its instance; may be empty.
    pub provider_id: String,
    /// The addresses that the route holds, if the provider's routes hold any.
    pub addresses: Vec<NodeAddress>,
}

impl RouteTarget {
    /// Whether it identifies no node.
    pub(super) fn is_nothing(&self) -> bool {
        self.name.is_empty() && self.provider_id.is_empty()
    }
}

/// Whether a route carries traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteState {
    /// Kept, but not counted as present.
    Unknown,
    /// It leads to its target.
    Active,
    /// Being created.
    Pending,
    /// Its target is gone: packets are lost.
    Blackhole,
}

/// The routes of this cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteList {
    pub routes: Vec<Route>,
    /// Everything was listed: no unreachable location, no restarted list, one process epoch, nothing dropped.
    pub complete: bool,
    /// Locations that could not be listed, and why.
    pub unreachable: Vec<(String, CloudError)>,
    /// One sentence for each thing dropped or corrected.
    pub rejected: Vec<String>,
}

/// A request that a destination lead to a node. A wrong target is replaced.
#[derive(Debug, Clone)]
pub struct EnsureRoute {
    /// Canonical.
    pub destination: IpNet,
    /// Only the fields that the provider wants are sent.
    pub node: Arc<Node>,
}

/// The result of a successful [`EnsureRoute`].
#[derive(Debug, Clone, PartialEq)]
pub struct EnsuredRoute {
    /// The current route; its target is the requested one. `None` only while in progress.
    pub route: Option<Route>,
    /// Set while the change is in progress.
    pub in_progress: Option<InProgress>,
    /// Events to write on the Node.
    pub events: Vec<ProviderEvent>,
}

/// The result of a successful deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedRoute {
    /// Set while the deletion is in progress.
    pub in_progress: Option<InProgress>,
}
