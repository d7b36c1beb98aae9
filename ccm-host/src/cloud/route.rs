//! A route of the cloud, as plain values.

use std::sync::Arc;

use ipnet::IpNet;

use super::{CloudError, InProgress, NodeAddress, ProviderEvent};
use crate::kube::Node;

/// A route as the cloud has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The cloud's id; never empty.
    pub id: String,
    /// Canonical, whatever the provider wrote.
    pub destination: IpNet,
    /// The node it leads to; `None`: nothing known.
    pub target: Option<RouteTarget>,
    /// What it does.
    pub state: RouteState,
    /// It is this cluster's: it says so, or routes here cannot say it.
    pub ours: bool,
}

/// The node that a route leads to, as the cloud knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteTarget {
    /// Name of the node; may be empty.
    pub name: String,
    /// Its uid; may be empty.
    pub uid: String,
    /// Provider ID of its machine; may be empty.
    pub provider_id: String,
    /// The addresses that the route holds, where the provider can do that.
    pub addresses: Vec<NodeAddress>,
}

impl RouteTarget {
    /// Whether it names nothing.
    pub(super) fn is_nothing(&self) -> bool {
        self.name.is_empty() && self.provider_id.is_empty()
    }
}

/// What a route does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteState {
    /// Not known: kept, and not taken as standing.
    Unknown,
    /// It leads to its target.
    Active,
    /// Being made.
    Pending,
    /// Its target is gone: packets are lost.
    Blackhole,
}

/// The routes of this cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteList {
    pub routes: Vec<Route>,
    /// The walk saw everything: no unreachable part, no restarted token, one process epoch, nothing dropped.
    pub complete: bool,
    /// What could not be asked.
    pub unreachable: Vec<(String, CloudError)>,
    /// Sentences that name each thing that was dropped or put right.
    pub rejected: Vec<String>,
}

/// Make a destination lead to a node. A wrong target is replaced.
#[derive(Debug, Clone)]
pub struct EnsureRoute {
    /// Canonical.
    pub destination: IpNet,
    /// Only the fields that the provider wants travel.
    pub node: Arc<Node>,
}

/// What became of an [`EnsureRoute`] that did not fail.
#[derive(Debug, Clone, PartialEq)]
pub struct EnsuredRoute {
    /// The route as it stands; its target is the one asked for. `None` only while it is in progress.
    pub route: Option<Route>,
    /// Set while it takes time.
    pub in_progress: Option<InProgress>,
    /// To be written on the Node.
    pub events: Vec<ProviderEvent>,
}

/// What became of a deletion that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedRoute {
    /// Set while it takes time.
    pub in_progress: Option<InProgress>,
}
