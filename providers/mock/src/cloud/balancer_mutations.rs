//! What Ensure, BatchUpdate and Delete do to one balancer: create, change, adopt, delete, or leave it alone.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloudprovider_sdk::{ProviderError, Result, proto::*};
use jiff::Timestamp;

use super::{
    Balancer, BalancerState, FoundBalancer, Ingress, Port, ServiceFields, State, Target, address_pool,
    balancer_config::{self, Config},
    balancers::legacy_name,
    state::later,
};

/// The result of an Ensure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ensured {
    /// The balancer.
    pub balancer: Balancer,
    /// It was adopted from a former controller.
    pub adopted: bool,
    /// This call created it.
    pub created: bool,
}

/// The result of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// Nothing of this cluster is left.
    Gone,
    /// A former controller's balancer was left alone.
    LegacyLeft,
    /// It is being deleted until then.
    Going(Timestamp),
}

impl State {
    /// Creates or changes the balancer as requested.
    ///
    /// # Errors
    ///
    /// The request is invalid, or the cloud refuses; a working balancer stays as it is.
    pub fn ensure_balancer(
        &mut self,
        cluster: &ClusterRef,
        mut wish: EnsureLoadBalancerRequest,
        now: Timestamp,
    ) -> Result<Ensured> {
        let adopt = wish.adoption() == Adoption::AdoptByLegacyName;
        let service = wish.service.take().unwrap_or_default();
        let config = balancer_config::check(&service)?;
        self.enter("balancers:write")?;
        let uid = uid_of(&service);
        let (old, adopted) = match self.find_balancer(&cluster.uid, uid) {
            FoundBalancer::ByUid(balancer) => (Some(balancer.clone()), false),
            FoundBalancer::ByLegacyName(balancer) if adopt => (Some(balancer.clone()), true),
            FoundBalancer::ByLegacyName(balancer) => {
                return Err(ProviderError::adoption_refused(&balancer.name));
            }
            FoundBalancer::NotOwned => {
                let what = format!("load balancer {}", legacy_name(uid));
                return Err(ProviderError::owned_by_other_cluster(&what));
            }
            FoundBalancer::Absent => (None, false),
        };
        let created = old.is_none();
        let mut balancer = match old {
            Some(balancer) => balancer,
            None => self.new_balancer(cluster, uid, now)?,
        };
        self.rename(&mut balancer, &config)?;
        self.assign_ingress(&mut balancer, &service, &config)?;
        balancer.cluster_uid.clone_from(&cluster.uid);
        if balancer.state == BalancerState::Deleting {
            balancer.state = BalancerState::Active;
            balancer.pending_digest.clear();
            balancer.due = None;
        }
        self.shape(&mut balancer, service, wish, now);
        let balancer = self.put_balancer(balancer);
        self.tick(now);
        let balancer = self.balancers.get(&balancer.id).cloned().unwrap_or(balancer);
        Ok(Ensured { balancer, adopted, created })
    }

    fn new_balancer(&mut self, cluster: &ClusterRef, uid: &str, now: Timestamp) -> Result<Balancer> {
        within(self.quota.max_balancers, self.balancers.len(), "load balancers")?;
        Ok(Balancer {
            id: self.next_id("lb"),
            name: legacy_name(uid),
            cluster_uid: cluster.uid.clone(),
            cluster_name: cluster.name.clone(),
            state: BalancerState::Provisioning,
            created: now,
            due: Some(later(now, self.provisioning())),
            ..Balancer::default()
        })
    }

    fn provisioning(&self) -> Duration {
        let slow = Duration::from_millis(self.conditions.provisioning_ms);
        self.settings.provisioning_delay.max(slow)
    }

    /// The digest counts as applied once what was asked for is done.
    fn set_digest(&self, balancer: &mut Balancer, digest: &str, now: Timestamp) {
        let takes = self.provisioning();
        if balancer.state == BalancerState::Provisioning {
            balancer.pending_digest = digest.into();
        } else if takes.is_zero() || balancer.applied_digest == digest {
            balancer.applied_digest = digest.into();
            balancer.pending_digest.clear();
            balancer.due = None;
        } else if balancer.pending_digest != digest {
            balancer.pending_digest = digest.into();
            balancer.due = Some(later(now, takes));
        }
    }

    /// Gives the balancer the requested name, unless it is taken.
    fn rename(&self, balancer: &mut Balancer, config: &Config) -> Result<()> {
        let wanted = config.name.clone().unwrap_or_else(|| balancer.name.clone());
        match self.balancer_named(&wanted).filter(|other| other.id != balancer.id) {
            Some(other) if other.cluster_uid == balancer.cluster_uid => {
                let owner = format!("{}/{}", other.namespace, other.service_name);
                let why = format!("name {wanted:?} is taken by service {owner}");
                return Err(balancer_config::invalid("name", &why));
            }
            Some(_) => return Err(ProviderError::owned_by_other_cluster(&format!("load balancer {wanted}"))),
            None => balancer.name = wanted,
        }
        Ok(())
    }

    /// Assigns addresses of the requested kind; those that already fit stay.
    fn assign_ingress(&self, balancer: &mut Balancer, service: &Service, config: &Config) -> Result<()> {
        let is_requested =
            |way: &Ingress| way.ip.is_some() && way.ip == service.load_balancer_ip.parse().ok();
        let has = balancer.ingress.iter().map(|way| way.ip.map(|ip| ip.is_ipv4()));
        let wanted = config.families.iter().map(|family| Some(*family == IpFamily::Ipv4));
        let fits = balancer.internal == config.internal
            && if config.hostname { has.eq([None]) } else { has.eq(wanted) }
            && (service.load_balancer_ip.is_empty() || balancer.ingress.iter().any(is_requested));
        if !fits {
            balancer.ingress = self.new_ingress(&balancer.id, service, config)?;
            balancer.internal = config.internal;
        }
        for way in &mut balancer.ingress {
            way.proxy = config.proxy;
        }
        Ok(())
    }

    fn new_ingress(&self, id: &str, service: &Service, config: &Config) -> Result<Vec<Ingress>> {
        if config.hostname {
            let hostname = Some(format!("{id}.lb.mock.example"));
            return Ok(vec![Ingress { ip: None, hostname, proxy: config.proxy }]);
        }
        let mut taken = self.taken_addresses();
        let mut ways = Vec::new();
        for (index, family) in config.families.iter().enumerate() {
            within(self.quota.max_addresses, taken.len(), "addresses")?;
            let ip = if index == 0 && !service.load_balancer_ip.is_empty() {
                address_pool::take_this(&mut taken, &service.load_balancer_ip, config.internal)?
            } else {
                address_pool::take(&mut taken, *family, config.internal)?
            };
            ways.push(Ingress { ip: Some(ip), hostname: None, proxy: config.proxy });
        }
        Ok(ways)
    }

    fn shape(
        &mut self,
        balancer: &mut Balancer,
        service: Service,
        wish: EnsureLoadBalancerRequest,
        now: Timestamp,
    ) {
        let set = wish.backends.unwrap_or_default();
        let backends = Arc::new(self.resolve_backends(&balancer.cluster_uid, &set.nodes));
        let local = service.external_traffic_policy() == TrafficPolicy::Local;
        let asked = ServiceFields::from(&service);
        let reference = service.r#ref.unwrap_or_default();
        *balancer = Balancer {
            service_uid: reference.uid,
            namespace: reference.namespace,
            service_name: reference.name,
            ports: service.ports.iter().map(Port::from).collect(),
            annotations: BTreeMap::from_iter(service.annotations),
            source_ranges: service.source_ranges,
            health_check_port: if local { service.health_check_node_port } else { 0 },
            affinity_seconds: service.client_ip_affinity.map_or(0, |timeout| timeout.seconds),
            asked,
            backends: self.share_backends(&set.digest, backends),
            backend_digest: set.digest,
            drifted: false,
            ..std::mem::take(balancer)
        };
        self.set_digest(balancer, &wish.desired_digest, now);
    }

    /// Replaces the backends of a balancer, and nothing else that the Service may say by now. Returns when the update will
    /// be done, if it is not yet.
    ///
    /// # Errors
    ///
    /// The balancer needs an Ensure.
    pub fn update_balancer(
        &mut self,
        cluster_uid: &str,
        wish: &LoadBalancerUpdate,
        (digest, backends): (&str, Arc<Vec<Target>>),
        now: Timestamp,
    ) -> Result<Option<Timestamp>> {
        let uid = wish.service.as_ref().map_or("", uid_of);
        let needs = |why: &str| {
            let text = format!("the load balancer needs an Ensure: {why}");
            Err(ProviderError::new(ErrorReason::NeedsEnsure, text))
        };
        let mut balancer = match self.own_balancer(cluster_uid, uid) {
            None => return needs("it does not exist"),
            Some(balancer) if balancer.state == BalancerState::Deleting => {
                return needs("it is being deleted");
            }
            Some(balancer) => balancer.clone(),
        };
        balancer.backends = self.share_backends(digest, backends);
        balancer.backend_digest = digest.into();
        self.set_digest(&mut balancer, &wish.desired_digest, now);
        let due = balancer.due;
        self.put_balancer(balancer);
        self.tick(now);
        Ok(due.filter(|due| *due > now))
    }

    /// Deletes the balancer of a Service; another cluster's is left alone.
    ///
    /// # Errors
    ///
    /// The cloud refuses. Absence is not an error.
    pub fn delete_balancer(
        &mut self,
        cluster_uid: &str,
        service_uid: &str,
        adopt: bool,
        now: Timestamp,
    ) -> Result<Deleted> {
        self.enter("balancers:write")?;
        let mut balancer = match self.find_balancer(cluster_uid, service_uid) {
            FoundBalancer::ByUid(balancer) => balancer.clone(),
            FoundBalancer::ByLegacyName(balancer) if adopt => balancer.clone(),
            FoundBalancer::ByLegacyName(_) => return Ok(Deleted::LegacyLeft),
            FoundBalancer::NotOwned | FoundBalancer::Absent => return Ok(Deleted::Gone),
        };
        if balancer.state != BalancerState::Deleting {
            balancer.state = BalancerState::Deleting;
            balancer.due = Some(later(now, self.settings.deletion_delay));
        }
        let due = balancer.due.unwrap_or(now);
        let id = balancer.id.clone();
        self.put_balancer(balancer);
        self.tick(now);
        Ok(if self.balancers.contains_key(&id) { Deleted::Going(due) } else { Deleted::Gone })
    }
}

fn within(limit: Option<u32>, used: usize, what: &str) -> Result<()> {
    match limit {
        Some(limit) if used >= limit as usize => {
            Err(ProviderError::quota_exceeded("the account", &format!("{limit} {what}")))
        }
        _ => Ok(()),
    }
}

fn uid_of(service: &Service) -> &str {
    service.r#ref.as_ref().map_or("", |reference| &reference.uid)
}
