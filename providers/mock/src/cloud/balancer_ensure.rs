//! What Ensure does: one balancer made, changed, taken over or left alone.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{
    Backend, Balancer, BalancerKey, BalancerState, CloudError, Family, FoundBalancer, Ingress, State,
    WantedService, address_pool,
    balancer_config::{self, Config},
    balancers::legacy_name,
    state::later,
};

/// The whole wanted state of one balancer.
#[derive(Debug, Clone)]
pub struct EnsureWish<'a> {
    /// Uid of the cluster.
    pub cluster_uid: &'a str,
    /// Name of the cluster.
    pub cluster_name: &'a str,
    /// The Service.
    pub service: &'a WantedService,
    /// The nodes.
    pub backends: Vec<Backend>,
    /// Digest of the nodes.
    pub backend_digest: &'a str,
    /// Digest of everything.
    pub desired_digest: &'a str,
    /// Whether a former controller's may be taken over.
    pub adopt: bool,
}

/// How far an ensured balancer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ensured {
    /// The balancer.
    pub balancer: Balancer,
    /// It was taken over from a former controller.
    pub adopted: bool,
    /// It was made by this call.
    pub created: bool,
}

impl State {
    /// Makes the balancer be as wanted.
    ///
    /// # Errors
    ///
    /// When the wish makes no sense, or the cloud refuses; a working balancer is left as it is.
    pub fn ensure_balancer(&mut self, wish: EnsureWish<'_>, now: Timestamp) -> Result<Ensured, CloudError> {
        let key = BalancerKey { cluster_uid: wish.cluster_uid.into(), service_uid: wish.service.uid.clone() };
        let config = balancer_config::check(wish.service)?;
        self.enter("balancers:write")?;
        let (old, adopted) = match self.find_balancer(&key) {
            FoundBalancer::ByUid(balancer) => (Some(balancer.clone()), false),
            FoundBalancer::ByLegacyName(balancer) if wish.adopt => (Some(balancer.clone()), true),
            FoundBalancer::ByLegacyName(balancer) => {
                return Err(CloudError::AdoptionRefused { name: balancer.name.clone() });
            }
            FoundBalancer::NotOwned => {
                let what = format!("load balancer {}", legacy_name(&key.service_uid));
                return Err(CloudError::OwnedByOtherCluster { what });
            }
            FoundBalancer::Absent => (None, false),
        };
        let created = old.is_none();
        let mut balancer = match old {
            Some(balancer) => balancer,
            None => self.new_balancer(&wish, now)?,
        };
        self.rename(&mut balancer, &config)?;
        self.assign_ingress(&mut balancer, wish.service, &config)?;
        self.shape(&mut balancer, wish, created || adopted);
        if balancer.state == BalancerState::Deleting {
            balancer.state = BalancerState::Active;
            balancer.due = None;
        }
        self.put_balancer(balancer.clone());
        self.tick(now);
        let balancer = self.balancers.get(&balancer.id).cloned().unwrap_or(balancer);
        Ok(Ensured { balancer, adopted, created })
    }

    fn new_balancer(&mut self, wish: &EnsureWish<'_>, now: Timestamp) -> Result<Balancer, CloudError> {
        if let Some(limit) = self.quota.max_balancers
            && self.balancers.len() >= limit as usize
        {
            return Err(CloudError::QuotaExceeded { subject: "load balancers".into(), limit });
        }
        let slow = Duration::from_millis(self.conditions.provisioning_ms);
        let delay = self.settings.provisioning_delay.max(slow);
        let id = self.next_id("lb");
        Ok(Balancer {
            name: legacy_name(&wish.service.uid),
            cluster_uid: wish.cluster_uid.into(),
            cluster_name: wish.cluster_name.into(),
            service_uid: wish.service.uid.clone(),
            namespace: wish.service.namespace.clone(),
            service_name: wish.service.name.clone(),
            state: BalancerState::Provisioning,
            created: now,
            due: Some(later(now, delay)),
            id,
            ..Balancer::default()
        })
    }

    /// Gives the balancer the name that was asked for, unless somebody has it.
    fn rename(&mut self, balancer: &mut Balancer, config: &Config) -> Result<(), CloudError> {
        let wanted = config.name.clone().unwrap_or_else(|| balancer.name.clone());
        match self.balancer_named(&wanted) {
            Some(other) if other.id == balancer.id => {}
            None => {}
            Some(other) if other.cluster_uid == balancer.cluster_uid => {
                return Err(CloudError::InvalidConfiguration {
                    field: format!("metadata.annotations[{}name]", super::ANNOTATION_PREFIX),
                    message: format!(
                        "name {wanted:?} is taken by service {}/{}",
                        other.namespace, other.service_name
                    ),
                });
            }
            Some(_) => {
                return Err(CloudError::OwnedByOtherCluster { what: format!("load balancer {wanted}") });
            }
        }
        balancer.name = wanted;
        Ok(())
    }

    /// Gives addresses of the wanted kind; those that fit already stay.
    fn assign_ingress(
        &mut self,
        balancer: &mut Balancer,
        service: &WantedService,
        config: &Config,
    ) -> Result<(), CloudError> {
        let fits = !balancer.ingress.is_empty()
            && balancer.internal == config.internal
            && shape_of(&balancer.ingress) == (config.hostname, wanted_families(config))
            && (service.requested_ip.is_empty()
                || balancer
                    .ingress
                    .iter()
                    .any(|way| way.ip.is_some_and(|ip| ip.to_string() == service.requested_ip)));
        if !fits {
            let ingress = self.new_ingress(&balancer.id, service, config)?;
            self.free_addresses(balancer);
            balancer.ingress = ingress;
            balancer.internal = config.internal;
        }
        for way in &mut balancer.ingress {
            way.proxy = config.proxy;
        }
        Ok(())
    }

    fn new_ingress(
        &mut self,
        id: &str,
        service: &WantedService,
        config: &Config,
    ) -> Result<Vec<Ingress>, CloudError> {
        if config.hostname {
            let hostname = Some(format!("{id}.lb.mock.example"));
            return Ok(vec![Ingress { ip: None, hostname, proxy: config.proxy }]);
        }
        let mut taken = self.taken_addresses.clone();
        let mut ways = Vec::new();
        for (index, family) in config.families.iter().enumerate() {
            if let Some(limit) = self.quota.max_addresses
                && taken.len() >= limit as usize
            {
                return Err(CloudError::QuotaExceeded { subject: "addresses".into(), limit });
            }
            let ip = if index == 0 && !service.requested_ip.is_empty() {
                address_pool::take_this(&mut taken, &service.requested_ip, config.internal)?
            } else {
                address_pool::take(&mut taken, *family, config.internal)?
            };
            ways.push(Ingress { ip: Some(ip), hostname: None, proxy: config.proxy });
        }
        self.taken_addresses = taken;
        Ok(ways)
    }

    fn shape(&mut self, balancer: &mut Balancer, wish: EnsureWish<'_>, retag: bool) {
        let service = wish.service;
        let backends = self.share_backends(wish.backend_digest, Arc::new(wish.backends));
        let same = !retag
            && !balancer.drifted
            && balancer.ports == service.ports
            && balancer.annotations == service.annotations
            && balancer.source_ranges == service.source_ranges
            && balancer.health_check_port == service.health_check_port
            && balancer.backends == backends;
        balancer.cluster_uid = wish.cluster_uid.into();
        balancer.service_uid.clone_from(&service.uid);
        balancer.namespace.clone_from(&service.namespace);
        balancer.service_name.clone_from(&service.name);
        balancer.ports.clone_from(&service.ports);
        balancer.annotations.clone_from(&service.annotations);
        balancer.source_ranges.clone_from(&service.source_ranges);
        balancer.health_check_port = service.health_check_port;
        balancer.backends = backends;
        balancer.backend_digest = wish.backend_digest.into();
        balancer.drifted = false;
        balancer.writes += u64::from(!same);
        set_digest(balancer, wish.desired_digest);
    }
}

/// The digest counts as applied once the balancer serves.
pub(super) fn set_digest(balancer: &mut Balancer, digest: &str) {
    if balancer.state == BalancerState::Provisioning {
        balancer.pending_digest = digest.into();
    } else {
        balancer.applied_digest = digest.into();
        balancer.pending_digest.clear();
    }
}

fn shape_of(ingress: &[Ingress]) -> (bool, Vec<bool>) {
    let hostname = ingress.iter().any(|way| way.hostname.is_some());
    (hostname, ingress.iter().filter_map(|way| way.ip.map(|ip| ip.is_ipv4())).collect())
}

fn wanted_families(config: &Config) -> Vec<bool> {
    if config.hostname {
        return Vec::new();
    }
    config.families.iter().map(|family| *family == Family::V4).collect()
}
