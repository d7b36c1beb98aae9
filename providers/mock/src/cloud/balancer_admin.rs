//! What happens to balancers behind the provider's back.

use std::sync::Arc;

use cloudprovider_sdk::proto::IpFamily;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    Backend, Balancer, BalancerState, CloudError, Ingress, Port, State, address_pool, balancers::legacy_name,
    existing,
};

/// A balancer as a former controller left it: with a name, without uids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewLegacyBalancer {
    /// Uid of the Service: the name comes from it.
    pub service_uid: String,
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service_name: String,
    /// Name of the cluster, if the former controller recorded it; else every cluster sees it.
    pub cluster_name: String,
    /// Uid of a cluster: then it is no legacy balancer but another cluster's.
    pub cluster_uid: String,
    /// Ports.
    pub ports: Vec<Port>,
}

/// A change behind the provider's back: the balancer counts as drifted. What is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BalancerPatch {
    /// All ports.
    pub ports: Option<Vec<Port>>,
    /// All nodes behind it.
    pub backends: Option<Vec<Backend>>,
    /// Who may come in.
    pub source_ranges: Option<Vec<String>>,
    /// Digest recorded with it.
    pub applied_digest: Option<String>,
    /// Owner: an empty text makes it a former controller's.
    pub cluster_uid: Option<String>,
    /// Whether it counts as drifted; true when left out.
    pub drifted: Option<bool>,
}

impl State {
    /// What was applied is known no more: the cloud has no tags to keep it in.
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

    /// Makes a former controller's balancer, or another cluster's.
    ///
    /// # Errors
    ///
    /// When the Service uid is missing or the name is taken.
    pub fn create_legacy_balancer(
        &mut self,
        wish: NewLegacyBalancer,
        now: Timestamp,
    ) -> Result<Balancer, CloudError> {
        if wish.service_uid.is_empty() {
            return Err(CloudError::Invalid("service_uid is needed: the name comes from it".into()));
        }
        let name = legacy_name(&wish.service_uid);
        if self.balancer_named(&name).is_some() {
            return Err(CloudError::AlreadyExists(format!("load balancer {name}")));
        }
        let ip = address_pool::take(&mut self.taken_addresses, IpFamily::Ipv4, false)?;
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

    /// Changes a balancer behind the provider's back.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn patch_balancer(&mut self, reference: &str, patch: BalancerPatch) -> Result<Balancer, CloudError> {
        let mut balancer = self.existing_balancer(reference)?;
        take_over!(balancer, patch: BalancerPatch {
            ports source_ranges applied_digest cluster_uid; backends drifted
        });
        balancer.backends = backends.map_or(balancer.backends, Arc::new);
        balancer.drifted = drifted.unwrap_or(true);
        Ok(self.put_balancer(balancer))
    }

    /// Takes a balancer away behind the provider's back.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn remove_balancer_outside(&mut self, reference: &str) -> Result<Balancer, CloudError> {
        let balancer = self.existing_balancer(reference)?;
        self.remove_balancer(&balancer.id);
        Ok(balancer)
    }

    /// A second balancer like this one: what a provider leaves behind that forgets its natural keys.
    ///
    /// # Errors
    ///
    /// When there is none, or no address.
    pub fn double_balancer(&mut self, reference: &str) -> Result<Balancer, CloudError> {
        let mut balancer = self.existing_balancer(reference)?;
        let ip = address_pool::take(&mut self.taken_addresses, IpFamily::Ipv4, balancer.internal)?;
        balancer.id = self.next_id("lb");
        balancer.name = format!("{}-{}", balancer.name, self.last_id);
        balancer.ingress = vec![Ingress { ip: Some(ip), hostname: None, proxy: false }];
        Ok(self.put_balancer(balancer))
    }

    /// Leaves a balancer half made: what a provider does that gives up in the middle.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn halve_balancer(&mut self, reference: &str) -> Result<Balancer, CloudError> {
        let mut balancer = self.existing_balancer(reference)?;
        self.free_addresses(&balancer);
        balancer.ingress.clear();
        balancer.backends = Arc::default();
        balancer.applied_digest.clear();
        balancer.drifted = true;
        Ok(self.put_balancer(balancer))
    }
}
