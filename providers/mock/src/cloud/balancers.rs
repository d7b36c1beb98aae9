//! Balancers: found by their natural key, never by what an answer told, so that a lost answer does no harm; and
//! what the cloud holds for a cluster.

use std::sync::Arc;

use cloudprovider_sdk::{Result, proto};
use serde::{Deserialize, Serialize};

use super::{
    Backend, Balancer, BalancerState, CloudError, State,
    index::{Indexes, ids, set},
    lookup::Found,
};

/// What is found for a natural key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundBalancer<'a> {
    /// Ours, by both uids.
    ByUid(&'a Balancer),
    /// A former controller's, by its name.
    ByLegacyName(&'a Balancer),
    /// Another cluster's.
    NotOwned,
    /// None.
    Absent,
}

/// One thing that the cloud holds for a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// What it is.
    pub kind: String,
    /// Its id.
    pub id: String,
}

impl Held {
    fn new(kind: &str, id: &str) -> Self {
        Self { kind: kind.to_owned(), id: id.to_owned() }
    }
}

/// The firewall of a balancer: made and removed together with it.
fn firewall_of(balancer: &Balancer) -> String {
    balancer.id.replacen("lb", "fw", 1)
}

/// The name that in-tree providers give the balancer of a Service.
pub fn legacy_name(service_uid: &str) -> String {
    let mut name = format!("a{}", service_uid.replace('-', ""));
    name.truncate(name.char_indices().nth(32).map_or(name.len(), |(end, _)| end));
    name
}

impl State {
    /// What is there for a natural key.
    pub fn find_balancer(&self, cluster_uid: &str, service_uid: &str) -> FoundBalancer<'_> {
        if let Some(balancer) = self.own_balancer(cluster_uid, service_uid) {
            return FoundBalancer::ByUid(balancer);
        }
        match self.balancer_named(&legacy_name(service_uid)) {
            Some(balancer) if balancer.is_legacy() => FoundBalancer::ByLegacyName(balancer),
            Some(balancer) if balancer.cluster_uid != cluster_uid => FoundBalancer::NotOwned,
            _ => FoundBalancer::Absent,
        }
    }

    pub(super) fn own_balancer(&self, cluster_uid: &str, service_uid: &str) -> Option<&Balancer> {
        let key = (cluster_uid.to_owned(), service_uid.to_owned());
        ids(&self.indexes.balancer_by_key, key).next().and_then(|id| self.balancers.get(id))
    }

    pub(super) fn balancer_named(&self, name: &str) -> Option<&Balancer> {
        ids(&self.indexes.balancer_by_name, name.to_owned()).next().and_then(|id| self.balancers.get(id))
    }

    /// All balancers that a cluster may see, by id: its own, and those of a former controller of this cluster's name.
    ///
    /// # Errors
    ///
    /// When the cloud cannot be asked.
    pub fn list_balancers(&self, cluster: &proto::ClusterRef) -> Result<Vec<&Balancer>> {
        self.enter("balancers:read")?;
        let shown = |balancer: &&Balancer| match balancer.cluster_uid.as_str() {
            "" => balancer.cluster_name.is_empty() || balancer.cluster_name == cluster.name,
            owner => owner == cluster.uid,
        };
        Ok(self.balancers.values().filter(shown).collect())
    }

    /// The nodes behind balancers, with the provider IDs that the cloud knows.
    pub fn resolve_backends(&self, cluster_uid: &str, nodes: &[proto::NodeRef]) -> Vec<Backend> {
        let resolve = |node: &proto::NodeRef| {
            let found = || match self.find_node(cluster_uid, node) {
                Found::Instance(machine) => machine.provider_id.clone(),
                _ => String::new(),
            };
            let provider_id = if node.provider_id.is_empty() { found() } else { node.provider_id.clone() };
            Backend { node: node.name.clone(), provider_id }
        };
        nodes.iter().map(resolve).collect()
    }

    pub(super) fn put_balancer(&mut self, balancer: Balancer) -> Balancer {
        if let Some(old) = self.balancers.insert(balancer.id.clone(), balancer.clone()) {
            self.index_balancer(&old, false);
        }
        self.index_balancer(&balancer, true);
        if !balancer.is_legacy() {
            self.firewalls.insert(firewall_of(&balancer), balancer.cluster_uid.clone());
        }
        self.touch();
        balancer
    }

    pub(super) fn remove_balancer(&mut self, id: &str) {
        if let Some(balancer) = self.balancers.remove(id) {
            self.index_balancer(&balancer, false);
            self.firewalls.remove(&firewall_of(&balancer));
            self.free_addresses(&balancer);
            self.touch();
        }
    }

    pub(super) fn free_addresses(&mut self, balancer: &Balancer) {
        for ip in balancer.ingress.iter().filter_map(|way| way.ip) {
            self.taken_addresses.remove(&ip);
        }
    }

    pub(super) fn index_balancer(&mut self, balancer: &Balancer, there: bool) {
        let Indexes { balancer_by_key, balancer_by_name, due, .. } = &mut self.indexes;
        if !balancer.is_legacy() {
            let key = (balancer.cluster_uid.clone(), balancer.service_uid.clone());
            set(balancer_by_key, key, &balancer.id, there);
        }
        set(balancer_by_name, balancer.name.clone(), &balancer.id, there);
        balancer.due.into_iter().for_each(|at| set(due, at, &balancer.id, there));
    }

    pub(super) fn advance_balancer(&mut self, id: &str) {
        let Some(mut balancer) = self.balancers.get(id).cloned() else { return };
        balancer.due = None;
        match balancer.state {
            BalancerState::Provisioning => {
                balancer.state = BalancerState::Active;
                balancer.applied_digest = std::mem::take(&mut balancer.pending_digest);
                self.put_balancer(balancer);
            }
            BalancerState::Deleting => self.remove_balancer(id),
            BalancerState::Active => {}
        }
    }

    /// One copy of a set for all balancers that stand before it.
    pub(super) fn share_backends(&mut self, digest: &str, backends: Arc<Vec<Backend>>) -> Arc<Vec<Backend>> {
        let sets = &mut self.indexes.backend_sets;
        if let Some(shared) = sets.get(digest).and_then(std::sync::Weak::upgrade)
            && (Arc::ptr_eq(&shared, &backends) || shared == backends)
        {
            return shared;
        }
        sets.retain(|_, set| set.strong_count() > 0);
        sets.insert(digest.to_owned(), Arc::downgrade(&backends));
        backends
    }

    /// What there is for a cluster, beside its machines.
    pub fn held(&self, cluster_uid: &str) -> Vec<Held> {
        let balancers = self.balancers.values().filter(|balancer| balancer.cluster_uid == cluster_uid);
        let firewalls = self.firewalls.iter().filter(|(_, owner)| *owner == cluster_uid);
        let routes = self.routes.values().filter(|route| route.cluster_uid == cluster_uid);
        balancers
            .map(|balancer| Held::new("load-balancer", &balancer.id))
            .chain(firewalls.map(|(id, _)| Held::new("firewall", id)))
            .chain(routes.map(|route| Held::new("route", &route.id)))
            .collect()
    }

    /// From now on the balancer's firewall stays when the balancer goes: what a provider leaves behind that forgets it.
    ///
    /// # Errors
    ///
    /// When there is no such balancer.
    pub fn forget_firewall(&mut self, reference: &str) -> Result<(), CloudError> {
        let balancer = self.existing_balancer(reference)?;
        if let Some(owner) = self.firewalls.remove(&firewall_of(&balancer)) {
            self.firewalls.insert(format!("{}-left", firewall_of(&balancer)), owner);
            self.touch();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
