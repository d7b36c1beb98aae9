//! Decides which of a node's routes to create, replace or remove at its provider. Pure.
//!
//! In: what the node wants, and the known routes. Out: routes to remove, destinations to ensure, and what to report.
//! Ensure replaces a wrong target, so that a destination is never without a route; only what Ensure does not reach is
//! removed.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc};

use ipnet::IpNet;

use super::condition::Reach;
use ccm_cloud::{AddressType, Route, RouteState, RouteTarget};
use ccm_kube::node::Node;
use ccm_reconcile::{Report, Retry};

#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) node: &'a Node,
    /// The destinations that the node wants.
    pub(super) wishes: Vec<Wish>,
    /// The routes to those destinations, and those that lead to the node, without duplicates.
    pub(super) routes: Vec<Arc<Route>>,
    /// Destinations of these routes that another node of this provider holds, or may.
    pub(super) held_by_others: BTreeSet<IpNet>,
    /// The provider's routes contain addresses of nodes.
    pub(super) holds_addresses: bool,
    /// The cluster CIDRs, in which routes are ours.
    pub(super) cluster: &'a [IpNet],
}

/// A destination that a node wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) destination: IpNet,
    /// The node that holds it; usually this one.
    pub(super) holder: String,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// One for each destination of ours that the node holds.
    pub(super) lanes: Vec<RouteSteps>,
    /// Routes to the node that it no longer wants.
    pub(super) stale: Vec<Arc<Route>>,
    /// The node is concerned with routes: it wants some, or some lead to it.
    pub(super) concerned: bool,
    /// The reach of wishes that no lane works on.
    pub(super) unreached: Vec<Reach>,
    /// What is wrong with its wishes.
    pub(super) reports: Vec<Report>,
}

/// The steps for one destination, in this order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RouteSteps {
    pub(super) destination: IpNet,
    /// Routes beside the right one.
    pub(super) remove: Vec<Arc<Route>>,
    /// A call must make the destination lead to the node.
    pub(super) ensure: bool,
    /// A route leads to the node already, even if it is not as wanted.
    pub(super) leads: bool,
}

impl Plan {
    /// Whether there is nothing to do at the provider.
    pub(super) fn is_idle(&self) -> bool {
        self.stale.is_empty() && self.lanes.iter().all(|lane| lane.remove.is_empty() && !lane.ensure)
    }

    /// All routes to remove.
    pub(super) fn removals(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.lanes.iter().flat_map(|lane| &lane.remove).chain(&self.stale)
    }
}

pub(super) fn decide(facts: &Facts<'_>) -> Plan {
    let mut plan = Plan {
        concerned: !facts.wishes.is_empty() || facts.routes.iter().any(|route| names(route, facts.node)),
        ..Plan::default()
    };
    for wish in &facts.wishes {
        if !contain(facts.cluster, &wish.destination) {
            plan.unreached.push(Reach::Foreign);
            plan.reports.push(outside(&wish.destination));
        } else if facts.node.name != wish.holder {
            plan.unreached.push(Reach::Missing);
            plan.reports.push(taken(&wish.destination, &wish.holder));
        } else {
            let (lane, report) = lane(facts, wish.destination);
            plan.reports.extend(report);
            plan.lanes.push(lane);
        }
    }
    plan.stale = facts.routes.iter().filter(|route| is_stale(facts, route)).cloned().collect();
    plan
}

fn lane(facts: &Facts<'_>, destination: IpNet) -> (RouteSteps, Option<Report>) {
    let at: Vec<&Arc<Route>> = facts.routes.iter().filter(|route| route.destination == destination).collect();
    let report = (at.len() > 1).then(|| several(&destination, at.len()));
    let good = at.iter().find(|route| is_as_wanted(facts, route)).copied();
    // The route for Ensure to replace: the one that leads to the node with errors, else any.
    let leading = at.iter().find(|route| leads_to(route, facts.node)).copied();
    let kept = good.or(leading).or(at.first().copied());
    let beside = at.iter().copied().filter(|route| kept.is_none_or(|kept| kept.id != route.id));
    // A second correct route does no harm; upstream keeps it, too.
    let remove = beside.filter(|route| is_removable(route) && !is_as_wanted(facts, route)).cloned().collect();
    (RouteSteps { destination, remove, ensure: good.is_none(), leads: leading.is_some() }, report)
}

/// Outside the cluster CIDRs, no route is ours.
fn outside(destination: &IpNet) -> Report {
    let what = format!(
        "the host creates no route to the pod CIDR {destination}: it is outside --cluster-cidr, where routes are never \
         removed"
    );
    Report::blocked("PodCIDROutsideClusterCIDR", what, Retry::Wait).warning("PodCIDROutsideClusterCIDR")
}

fn taken(destination: &IpNet, holder: &str) -> Report {
    let what =
        format!("the pod CIDR {destination} is also that of the older node {holder}, which keeps the route");
    Report::blocked("PodCIDRConflict", what, Retry::Wait).warning("PodCIDRConflict")
}

fn several(destination: &IpNet, count: usize) -> Report {
    let what = format!("{count} routes lead to the pod CIDR {destination}");
    Report::blocked("DuplicateRoutes", what, Retry::Wait).warning("DuplicateRoutes")
}

/// Whether the route leads to this node but is not wanted.
fn is_stale(facts: &Facts<'_>, route: &Route) -> bool {
    let wished = facts.wishes.iter().any(|wish| wish.destination == route.destination);
    !wished
        && is_removable(route)
        && contain(facts.cluster, &route.destination)
        // Its holder's Ensure replaces it.
        && !facts.held_by_others.contains(&route.destination)
}

/// Whether the route may be removed: its state must be known, and it must be ours.
pub(super) fn is_removable(route: &Route) -> bool {
    match route.state {
        RouteState::Unspecified => false,
        RouteState::Active | RouteState::Pending | RouteState::Blackhole => route.ours,
    }
}

fn is_as_wanted(facts: &Facts<'_>, route: &Route) -> bool {
    let addresses =
        |node: &Node, target: &RouteTarget| !facts.holds_addresses || are_its_addresses(node, target);
    route.state == RouteState::Active
        && leads_to(route, facts.node)
        && route.target.as_ref().is_some_and(|target| addresses(facts.node, target))
}

/// Whether the route leads to this node, and not to a former one of its name.
fn leads_to(route: &Route, node: &Node) -> bool {
    let Some(target) = &route.target else { return false };
    let provider_id = node.provider_id.as_deref().unwrap_or_default();
    let same_instance = provider_id == target.provider_id;
    let name_agrees = target.name == node.name || (target.name.is_empty() && same_instance);
    name_agrees && (same_instance || provider_id.is_empty() || target.provider_id.is_empty())
}

/// Whether the route names this node, or a former one of its name.
fn names(route: &Route, node: &Node) -> bool {
    leads_to(route, node) || route.target.as_ref().is_some_and(|target| target.name == node.name)
}

/// Whether the route contains exactly the node's addresses, in any order.
fn are_its_addresses(node: &Node, target: &RouteTarget) -> bool {
    let mut its: Vec<(&str, &str)> = node
        .addresses
        .iter()
        .map(|address| (address.type_.as_str(), address.address.as_str()))
        // Address types known only to their writer are not sent to providers.
        .filter(|(kind, _)| AddressType::of(kind).is_some())
        .collect();
    let mut held: Vec<(&str, &str)> =
        target.addresses.iter().map(|address| (address.kind.as_str(), address.address.as_str())).collect();
    for list in [&mut its, &mut held] {
        list.sort_unstable();
        list.dedup();
    }
    its == held
}

/// Whether routes to this destination are ours to make and to remove: it lies inside one of these cluster CIDRs.
pub(super) fn contain(cluster: &[IpNet], destination: &IpNet) -> bool {
    cluster.iter().any(|cluster| cluster.contains(destination))
}
