//! Gathers what is known about a node and its routes.
//!
//! In: caches, claims and tables; no RPCs. Out: the node's owner, and the facts for [`decide`](super::decide).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ipnet::IpNet;

use super::{
    Cloud, Controller, RouteKey,
    claims::destinations,
    condition::{self, Reach},
    decide::{Facts, Wish, contain, decide, is_removable},
    table::{Holder, Learnt},
};
use ccm_cloud::{Family, NodeOwner, ProviderStatus, Route};
use ccm_kube::node::Node;
use ccm_reconcile::{Retry, taint};

/// What there is to do about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// Its condition, or a report.
    Words,
    Routes,
}

impl Cloud {
    pub(super) fn serves_routes(&self) -> bool {
        self.provider.info().is_some_and(|info| info.routes)
    }

    pub(super) fn learnt(&self) -> Option<Learnt> {
        self.table.lock().learnt()
    }

    /// Whether routes may be removed on its behalf.
    pub(super) fn is_trusted(&self) -> bool {
        *self.provider.status(Family::Routes).borrow() == ProviderStatus::Serving
    }
}

impl Controller {
    /// The provider that makes the node's routes. Without one, it is left alone for now: a change of the node or of a
    /// provider will tell.
    pub(super) fn owner(&self, node: &Node) -> Option<&Cloud> {
        // Another controller is about to identify its instance.
        let is_identified = node.provider_id.is_some() || !node.has_taint(taint::UNINITIALIZED);
        if !is_identified || !self.shell.parts.settings.manages(node) {
            return None;
        }
        let name = match self.shell.parts.providers.for_node(node) {
            NodeOwner::Provider(provider) => Some(provider.name().to_owned()),
            NodeOwner::Candidates(_) | NodeOwner::Undecided => return None,
            NodeOwner::Nobody => None,
        };
        // Itself if it makes routes, else the only one that makes nothing but routes.
        let own = self.clouds.iter().find(|cloud| Some(cloud.name()) == name.as_deref());
        own.filter(|cloud| cloud.serves_routes()).or_else(|| {
            let only_routes =
                |cloud: &&Cloud| cloud.provider.info().is_some_and(|info| info.routes && !info.instances);
            let mut all = self.clouds.iter().filter(only_routes);
            all.next().filter(|_| all.next().is_none())
        })
    }

    /// The facts about a node at a provider. A node that is gone, or another provider's, has no wishes.
    pub(super) fn facts<'a>(
        &'a self,
        cloud: &Cloud,
        name: &str,
        node: Option<&'a Node>,
        is_owner: bool,
    ) -> Facts<'a> {
        let wanted = node.filter(|_| is_owner).map(destinations).unwrap_or_default();
        let instance = node.and_then(|node| node.provider_id.clone());
        let mut routes = BTreeMap::new();
        {
            let table = cloud.table.lock();
            let holders = [Some(Holder::Node(name.to_owned())), instance.map(Holder::Instance)];
            let its = holders.iter().flatten().flat_map(|holder| table.of(holder));
            for route in its.chain(wanted.iter().flat_map(|destination| table.to(destination))) {
                routes.insert(route.id.clone(), Arc::clone(route));
            }
        }
        let claims = self.claims.lock();
        let holder = |destination: &IpNet| claims.holder(destination).unwrap_or(name).to_owned();
        let held_by_others: BTreeSet<_> = routes
            .values()
            .map(|route| route.destination)
            .filter(|destination| holder(destination) != name)
            .collect();
        Facts {
            node,
            wishes: wanted
                .into_iter()
                .map(|destination| Wish { holder: holder(&destination), destination })
                .collect(),
            routes: routes.into_values().collect(),
            held_by_others,
            holds_addresses: cloud.provider.info().is_some_and(|info| info.route_node_addresses),
            cluster: &self.shell.parts.settings.cidrs.cluster,
        }
    }

    /// What a reconcile of the node would find to do at this provider.
    pub(super) fn due(&self, cloud: &Cloud, node: &Node) -> Due {
        let Some(owner) = self.owner(node) else { return Due::Nothing };
        let is_owner = owner.name() == cloud.name();
        let plan = decide(&self.facts(cloud, &node.name, Some(node), is_owner));
        let stand = plan.lanes.iter().map(|_| Reach::Stands);
        let reaches: Vec<Reach> = stand.chain(plan.unreached.iter().copied()).collect();
        let is_whole = cloud.learnt() == Some(Learnt::Whole);
        let differs = || {
            condition::wanted(node, plan.concerned, &reaches, is_whole)
                .is_some_and(|wanted| !condition::says(node, &wanted))
        };
        // The others have a retry of their own.
        let is_told = || {
            let mut said = self.shell.reports.of(&RouteKey::Node(node.name.clone()));
            said.retain(|report| report.retry == Retry::Wait);
            said == plan.reports
        };
        match plan.is_idle() {
            false => Due::Routes,
            true if is_owner && (differs() || !is_told()) => Due::Words,
            true => Due::Nothing,
        }
    }

    /// Whether a route leads to the node that should have it.
    pub(super) fn is_as_wanted(&self, route: &Route) -> bool {
        let claims = self.claims.lock();
        let Some(holder) = claims.holder(&route.destination) else { return false };
        match Holder::of(route) {
            Holder::Node(name) => name == holder,
            Holder::Instance(id) => {
                self.shell.parts.nodes.by_index(&id).iter().any(|node| node.name == holder)
            }
            Holder::Nobody => false,
        }
    }

    /// Whether a route leads to no known node, and no node wants its destination.
    pub(super) fn is_stray(&self, route: &Route) -> bool {
        let led = match Holder::of(route) {
            Holder::Nobody => false,
            Holder::Instance(id) => !self.shell.parts.nodes.by_index(&id).is_empty(),
            Holder::Node(_) => true,
        };
        !led && self.is_removable_at_all(route)
    }

    /// Whether a route without a node may be removed.
    pub(super) fn is_removable_at_all(&self, route: &Route) -> bool {
        is_removable(route)
            && contain(&self.shell.parts.settings.cidrs.cluster, &route.destination)
            && self.claims.lock().holder(&route.destination).is_none()
    }
}
