//! What the cloud holds for a cluster, and what a balancer brings along.

use serde::{Deserialize, Serialize};

use super::{Balancer, CloudError, State};

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
pub(super) fn firewall_of(balancer: &Balancer) -> String {
    balancer.id.replacen("lb", "fw", 1)
}

impl State {
    /// What there is for a cluster, beside its machines.
    #[must_use]
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
        let balancer = self.balancer(reference).cloned();
        let balancer =
            balancer.ok_or_else(|| CloudError::NotFound { what: format!("load balancer {reference}") })?;
        if let Some(owner) = self.firewalls.remove(&firewall_of(&balancer)) {
            self.firewalls.insert(format!("{}-left", firewall_of(&balancer)), owner);
            self.touch();
        }
        Ok(())
    }
}
