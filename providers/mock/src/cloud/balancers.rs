//! Balancers, looked up by their natural key and not by ids from answers, so that a lost answer does no harm; everything
//! that the cloud holds for a cluster; and changes behind the provider's back.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use cloudprovider_sdk::{
    Result,
    proto::{self, IpFamily},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Balancer, BalancerState, CloudError, Found, Ingress, Port, State, Target, address_pool, existing,
    outside::patched,
    state::{Indexes, ids, set},
};

/// The balancer found for a natural key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundBalancer<'a> {
    /// This cluster's, by both uids.
    ByUid(&'a Balancer),
    /// A former controller's, by name.
    ByLegacyName(&'a Balancer),
    /// Another cluster's.
    NotOwned,
    /// There is none.
    Absent,
}

/// A balancer as a former controller left it: it has a name but no uids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewLegacyBalancer {
    /// Uid of the Service, from which the name is derived.
    pub service_uid: String,
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service_name: String,
    /// Name of the cluster, if the former controller recorded it; otherwise every cluster sees the balancer.
    pub cluster_name: String,
    /// Uid of a cluster; makes it that cluster's balancer instead of a legacy one.
    pub cluster_uid: String,
    /// Ports.
    pub ports: Vec<Port>,
}

/// The id of a balancer's firewall, which is created and deleted with it.
fn firewall_of(balancer: &Balancer) -> String {
    balancer.id.replacen("lb", "fw", 1)
}

/// The name that in-tree providers give a Service's balancer.
pub fn legacy_name(service_uid: &str) -> String {
    let mut name = format!("a{}", service_uid.replace('-', ""));
    name.truncate(name.char_indices().nth(32).map_or(name.len(), |(end, _)| end));
    name
}

impl State {
    /// Looks up the balancer of a natural key.
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

    /// All balancers that a cluster may see, by id: its own, and legacy ones that have this cluster's name or none.
    ///
    /// # Errors
    ///
    /// The cloud cannot be queried.
    pub fn list_balancers(&self, cluster: &proto::ClusterRef) -> Result<Vec<&Balancer>> {
        self.enter("balancers:read")?;
        let shown = |balancer: &&Balancer| match balancer.cluster_uid.as_str() {
            "" => balancer.cluster_name.is_empty() || balancer.cluster_name == cluster.name,
            owner => owner == cluster.uid,
        };
        Ok(self.balancers.values().filter(shown).collect())
    }

    /// Turns nodes into backends, with the provider IDs that the cloud knows; that of a node without an instance is empty.
    pub fn resolve_backends(&self, cluster_uid: &str, nodes: &[proto::NodeRef]) -> Vec<Target> {
        let resolve = |node: &proto::NodeRef| {
            let provider_id = match self.find_node(cluster_uid, node) {
                Found::Instance(machine) => machine.provider_id.clone(),
                Found::Absent => String::new(),
                // It may be there.
                Found::NotOwned | Found::Unknown(_) => node.provider_id.clone(),
            };
            Target { node: node.name.clone(), provider_id }
        };
        nodes.iter().map(resolve).collect()
    }

    pub(super) fn put_balancer(&mut self, balancer: Balancer) -> Balancer {
        if let Some(old) = self.balancers.insert(balancer.id.clone(), balancer.clone()) {
            self.index_balancer(&old, false);
        }
        self.index_balancer(&balancer, true);
        balancer
    }

    pub(super) fn remove_balancer(&mut self, id: &str) {
        if let Some(balancer) = self.balancers.remove(id) {
            self.index_balancer(&balancer, false);
        }
    }

    /// The addresses that balancers hold.
    pub(super) fn taken_addresses(&self) -> BTreeSet<IpAddr> {
        self.balancers.values().flat_map(|balancer| &balancer.ingress).filter_map(|way| way.ip).collect()
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
        if balancer.state == BalancerState::Deleting {
            self.remove_balancer(id);
        } else {
            balancer.state = BalancerState::Active;
            balancer.applied_digest = std::mem::take(&mut balancer.pending_digest);
            self.put_balancer(balancer);
        }
    }

    /// Shares one copy of a backend set among all balancers that use it.
    pub(super) fn share_backends(&mut self, digest: &str, backends: Arc<Vec<Target>>) -> Arc<Vec<Target>> {
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

    /// Kind and id of everything that the cloud holds for a cluster, except instances.
    pub fn held(&self, cluster_uid: &str) -> Vec<Value> {
        let ours = || self.balancers.values().filter(|balancer| balancer.cluster_uid == cluster_uid);
        let left = self.left_firewalls.iter().filter(|(_, owner)| *owner == cluster_uid);
        let firewalls = ours().map(firewall_of).chain(left.map(|(id, _)| id.clone()));
        let routes = self.routes.values().filter(|route| route.cluster_uid == cluster_uid);
        let balancers = ours().map(|balancer| json!({"kind": "load-balancer", "id": balancer.id}));
        let firewalls = firewalls.map(|id| json!({"kind": "firewall", "id": id}));
        let routes = routes.map(|route| json!({"kind": "route", "id": route.id}));
        balancers.chain(firewalls).chain(routes).collect()
    }

    /// Detaches the firewall, so that it outlives the balancer: as if a provider forgot to delete it.
    ///
    /// # Errors
    ///
    /// There is no such balancer.
    pub fn forget_firewall(&mut self, reference: &str) -> Result<(), CloudError> {
        let balancer = self.existing_balancer(reference)?;
        self.left_firewalls.insert(format!("{}-left", firewall_of(&balancer)), balancer.cluster_uid);
        Ok(())
    }

    /// Forgets all applied digests, as a cloud without tags does.
    pub fn forget_digests(&mut self) {
        self.balancers.values_mut().for_each(|balancer| balancer.applied_digest.clear());
    }

    /// All balancers, by id.
    pub fn balancers(&self) -> impl Iterator<Item = &Balancer> {
        self.balancers.values()
    }

    /// The balancer with this id, name, Service uid or `namespace/name`.
    pub fn balancer(&self, reference: &str) -> Option<&Balancer> {
        let matches = |balancer: &&Balancer| {
            balancer.name == reference
                || balancer.service_uid == reference
                || reference.split_once('/') == Some((&*balancer.namespace, &*balancer.service_name))
        };
        self.balancers.get(reference).or_else(|| self.balancers.values().find(matches))
    }

    pub(super) fn existing_balancer(&self, reference: &str) -> Result<Balancer, CloudError> {
        existing("load balancer", reference, self.balancer(reference).cloned())
    }

    /// Tells why balancers are not carried; empty if they are.
    pub(crate) fn set_traffic_errors(&mut self, why: impl Fn(&Balancer) -> String) {
        for balancer in self.balancers.values_mut() {
            balancer.traffic_error = why(balancer);
        }
    }

    /// Creates a balancer of a former controller, or of another cluster.
    ///
    /// # Errors
    ///
    /// The Service uid is missing, or the name is taken.
    pub fn create_legacy_balancer(
        &mut self,
        wish: NewLegacyBalancer,
        now: Timestamp,
    ) -> Result<Balancer, CloudError> {
        if wish.service_uid.is_empty() {
            return Err(CloudError::Invalid("service_uid is required: the name is derived from it".into()));
        }
        let name = legacy_name(&wish.service_uid);
        if self.balancer_named(&name).is_some() {
            return Err(CloudError::AlreadyExists(format!("load balancer {name}")));
        }
        let ip = address_pool::take(&mut self.taken_addresses(), IpFamily::Ipv4, false)?;
        let legacy = wish.cluster_uid.is_empty();
        let balancer = Balancer {
            id: self.next_id("lb"),
            name,
            service_uid: if legacy { String::new() } else { wish.service_uid },
            cluster_uid: wish.cluster_uid,
            cluster_name: wish.cluster_name,
            namespace: wish.namespace,
            service_name: wish.service_name,
            state: BalancerState::Active,
            ports: wish.ports,
            ingress: vec![Ingress { ip: Some(ip), hostname: None, proxy: false }],
            created: now,
            ..Balancer::default()
        };
        Ok(self.put_balancer(balancer))
    }

    /// Changes a balancer behind the provider's back; it counts as drifted, unless the patch says otherwise.
    ///
    /// # Errors
    ///
    /// There is none, or the patch does not fit.
    pub fn patch_balancer(&mut self, reference: &str, patch: &Value) -> Result<Balancer, CloudError> {
        let old = self.existing_balancer(reference)?;
        let mut balancer = patched(&old, patch, &["id", "state", "created", "due", "traffic_error"])?;
        balancer.drifted |= patch.get("drifted").is_none();
        Ok(self.put_balancer(balancer))
    }

    /// Deletes a balancer behind the provider's back.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn remove_balancer_outside(&mut self, reference: &str) -> Result<Balancer, CloudError> {
        let balancer = self.existing_balancer(reference)?;
        self.remove_balancer(&balancer.id);
        Ok(balancer)
    }

    /// Creates a duplicate of a balancer, as a provider does that ignores natural keys.
    ///
    /// # Errors
    ///
    /// There is none, or no address is free.
    pub fn double_balancer(&mut self, reference: &str) -> Result<Balancer, CloudError> {
        let mut balancer = self.existing_balancer(reference)?;
        let ip = address_pool::take(&mut self.taken_addresses(), IpFamily::Ipv4, balancer.internal)?;
        balancer.id = self.next_id("lb");
        balancer.name = format!("{}-{}", balancer.name, self.last_id);
        balancer.ingress = vec![Ingress { ip: Some(ip), hostname: None, proxy: false }];
        Ok(self.put_balancer(balancer))
    }

    /// Leaves a balancer half configured, as a provider does that gives up midway.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn halve_balancer(&mut self, reference: &str) -> Result<Balancer, CloudError> {
        let mut balancer = self.existing_balancer(reference)?;
        balancer.ingress.clear();
        balancer.backends = Arc::default();
        balancer.applied_digest.clear();
        balancer.drifted = true;
        Ok(self.put_balancer(balancer))
    }
}

#[cfg(test)]
mod tests;
