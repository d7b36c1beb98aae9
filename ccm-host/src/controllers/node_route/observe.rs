//! Gathers what is known about a node and its routes.
//!
//! In: caches, claims and tables; no RPCs. Out: the node's owner, and the facts for [`decide`](super::decide).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ipnet::IpNet;

use super::{
    Cloud, Controller,
    claims::{contain, destinations},
    condition::{self, Reach},
    decide::{Facts, Plan, Wish, decide, is_removable},
    table::{Holder, Learnt},
};
use crate::{
    cloud::{NodeOwner, ProviderStatus, Route},
    controllers::taint,
    kube::node::Node,
};

/// The provider that makes a node's routes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Owner<'a> {
    Of(&'a Cloud),
    /// Not known yet; a change of the node or of a provider will tell.
    Later,
    /// No provider, or the node is not ours: leave it alone.
    Nobody,
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
        *self.provider.status().borrow() == ProviderStatus::Serving
    }
}

impl Controller {
    pub(super) fn owner(&self, node: &Node) -> Owner<'_> {
        if !self.parts.settings.manages(node) {
            return Owner::Nobody;
        }
        // Another controller is about to identify its instance.
        if node.provider_id.is_none() && node.has_taint(taint::UNINITIALIZED) {
            return Owner::Later;
        }
        match self.parts.providers.for_node(node) {
            NodeOwner::Provider(provider) => self.router(Some(provider.name())),
            NodeOwner::Candidates(_) | NodeOwner::Undecided => Owner::Later,
            NodeOwner::Nobody => self.router(None),
        }
    }

    /// The provider itself if it makes routes, else the only one that makes nothing but routes.
    fn router(&self, name: Option<&str>) -> Owner<'_> {
        if let Some(own) = self.clouds.iter().find(|cloud| Some(cloud.name()) == name)
            && own.serves_routes()
        {
            return Owner::Of(own);
        }
        let only_routes =
            |cloud: &&Cloud| cloud.provider.info().is_some_and(|info| info.routes && !info.instances);
        let mut all = self.clouds.iter().filter(only_routes);
        match (all.next(), all.next()) {
            (Some(one), None) => Owner::Of(one),
            _ => Owner::Nobody,
        }
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
            cluster: &self.parts.settings.cidrs.cluster,
        }
    }

    /// Whether a reconcile of the node would remove routes at this provider.
    pub(super) fn has_removals(&self, cloud: &Cloud, node: &Node) -> bool {
        self.plan(cloud, node).is_some_and(|(plan, _)| plan.removals().next().is_some())
    }

    /// The plan for a node at this provider, and whether this provider owns the node; `None` means leave it alone.
    fn plan(&self, cloud: &Cloud, node: &Node) -> Option<(Plan, bool)> {
        let Owner::Of(owner) = self.owner(node) else { return None };
        let is_owner = owner.name() == cloud.name();
        Some((decide(&self.facts(cloud, &node.name, Some(node), is_owner)), is_owner))
    }

    /// Whether a reconcile of the node would find anything to do at this provider, or to write.
    pub(super) fn is_due(&self, cloud: &Cloud, node: &Node) -> bool {
        let Some((plan, is_owner)) = self.plan(cloud, node) else { return false };
        let stand = plan.lanes.iter().map(|_| Reach::Stands);
        let reaches: Vec<Reach> = stand.chain(plan.unreached()).collect();
        let is_whole = cloud.learnt() == Some(Learnt::Whole);
        let differs = || {
            condition::wanted(plan.concerned, &reaches, is_whole)
                .is_some_and(|wanted| !condition::says(node, &wanted))
        };
        !plan.is_idle() || (is_owner && differs())
    }

    /// Whether a route leads to the node that should have it.
    pub(super) fn is_as_wanted(&self, route: &Route) -> bool {
        let claims = self.claims.lock();
        let Some(holder) = claims.holder(&route.destination) else { return false };
        match Holder::of(route) {
            Holder::Node(name) => name == holder,
            Holder::Instance(id) => self.parts.nodes.by_index(&id).iter().any(|node| node.name == holder),
            Holder::Nobody => false,
        }
    }

    /// Whether a route leads to no known node, and no node wants its destination.
    pub(super) fn is_stray(&self, route: &Route) -> bool {
        let led = match Holder::of(route) {
            Holder::Nobody => false,
            Holder::Instance(id) => !self.parts.nodes.by_index(&id).is_empty(),
            Holder::Node(_) => true,
        };
        !led && self.is_removable_at_all(route)
    }

    /// Whether a route without a node may be removed.
    pub(super) fn is_removable_at_all(&self, route: &Route) -> bool {
        is_removable(route)
            && contain(&self.parts.settings.cidrs.cluster, &route.destination)
            && self.claims.lock().holder(&route.destination).is_none()
    }
}
