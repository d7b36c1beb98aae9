//! Instances, and what happens to them.

use std::{collections::BTreeMap, time::Duration};

use cloudprovider_sdk::proto;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    CloudError, Maintenance, State, existing,
    outside::patched,
    state::{later, set},
};

/// A larger bulk request is surely a mistake.
const MAX_BULK: u32 = 200_000;
const DEFAULT_TYPE: &str = "mock.small";

/// State of an instance, numbered as in the contract. An instance that is gone is not in the cloud at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    /// Being created.
    Pending = proto::InstanceState::Pending as isize,
    /// Running.
    Running = proto::InstanceState::Running as isize,
    /// Stopped; can be started again.
    Stopped = proto::InstanceState::Stopped as isize,
    /// Being deleted.
    Terminating = proto::InstanceState::Terminating as isize,
}

/// The type of an address, as Kubernetes spells it and the contract numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AddressKind {
    /// A host name.
    Hostname = proto::NodeAddressType::Hostname as isize,
    /// An IP within the cluster's network.
    #[serde(rename = "InternalIP")]
    InternalIp = proto::NodeAddressType::InternalIp as isize,
    /// An IP that is reachable from outside.
    #[serde(rename = "ExternalIP")]
    ExternalIp = proto::NodeAddressType::ExternalIp as isize,
    /// A name within the cluster's network.
    #[serde(rename = "InternalDNS")]
    InternalDns = proto::NodeAddressType::InternalDns as isize,
    /// A name that resolves from outside.
    #[serde(rename = "ExternalDNS")]
    ExternalDns = proto::NodeAddressType::ExternalDns as isize,
}

/// One address of an instance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Address {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: AddressKind,
    /// The IP or name.
    pub address: String,
}

impl Address {
    /// Makes an address of this type.
    pub fn new(kind: AddressKind, address: impl Into<String>) -> Self {
        Self { kind, address: address.into() }
    }
}

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The cloud's id, a running number.
    pub id: String,
    /// `mock://ZONE/ID`; never changes, even if the zone is patched.
    pub provider_id: String,
    /// Its name, which is also that of its Node.
    pub name: String,
    /// Uid of its cluster; empty if it belongs to every cluster that asks.
    pub cluster_uid: String,
    /// Its state.
    pub state: InstanceState,
    /// The type, for example `mock.small`.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Region.
    pub region: String,
    /// Addresses in their order.
    pub addresses: Vec<Address>,
    /// All additional labels for its node.
    pub labels: BTreeMap<String, String>,
    /// Annotations for its node; the host writes those under `mock.example/`.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// What the cloud plans to do to it.
    #[serde(default)]
    pub maintenance: Option<Maintenance>,
    /// Pod CIDRs that the cloud allocated.
    pub pod_cidrs: Vec<String>,
    /// The system UUID.
    pub system_uuid: String,
    /// When it was created.
    pub created: Timestamp,
    /// When its state changes by itself.
    pub due: Option<Timestamp>,
}

impl Instance {
    /// What a view shows of it.
    pub(crate) fn seen(&self, view: proto::InstanceView) -> proto::Instance {
        let bare = proto::Instance {
            provider_id: self.provider_id.clone(),
            name: self.name.clone(),
            ..proto::Instance::default()
        };
        if view == proto::InstanceView::Existence {
            return bare;
        }
        let address =
            |one: &Address| proto::NodeAddress { r#type: one.kind as i32, address: one.address.clone() };
        let with_pods = view != proto::InstanceView::Metadata;
        proto::Instance {
            instance_type: self.instance_type.clone(),
            addresses: self.addresses.iter().map(address).collect(),
            zone: self.zone.clone(),
            region: self.region.clone(),
            labels: self.labels.clone().into_iter().collect(),
            annotations: self.annotations.clone().into_iter().collect(),
            maintenance: self.maintenance.as_ref().map(proto::PlannedMaintenance::from),
            pod_cidrs: if with_pods { self.pod_cidrs.clone() } else { Vec::new() },
            ..bare
        }
    }
}

/// A request for instances. Every field is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewInstances {
    /// Name of the only instance; excludes `count`.
    pub name: Option<String>,
    /// How many; 1 by default.
    pub count: Option<u32>,
    /// Pattern of the names, in which `{}` is the number; `node-{}` by default.
    pub name_pattern: Option<String>,
    /// Number of the first; 0 by default.
    pub first: Option<u32>,
    /// Zones, used in turn; the cloud's zones by default.
    pub zones: Vec<String>,
    /// The type; `mock.small` by default.
    pub instance_type: Option<String>,
    /// Uid of the cluster; every cluster by default.
    pub cluster_uid: Option<String>,
    /// Addresses, only for a single instance; generated by default.
    pub addresses: Option<Vec<Address>>,
    /// Labels of the nodes.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the nodes.
    pub annotations: BTreeMap<String, String>,
    /// Only for a single instance; generated by default.
    pub pod_cidrs: Option<Vec<String>>,
    /// Only for a single instance; generated by default.
    pub system_uuid: Option<String>,
    /// How long they stay pending, in milliseconds.
    pub boot_ms: Option<u64>,
    /// Permits a second instance with the same name.
    pub allow_duplicate_name: bool,
}

impl NewInstances {
    /// One instance with this name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// This many instances, `node-0` and so on.
    pub fn many(count: u32) -> Self {
        Self { count: Some(count), ..Self::default() }
    }
}

/// The fields of an instance that no patch changes.
const FIXED: &[&str] = &["id", "provider_id", "state", "created", "due"];

impl State {
    /// All instances, by id.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.instances.values()
    }

    /// The instance with this id, provider ID or name.
    pub fn instance(&self, reference: &str) -> Option<&Instance> {
        let named = || self.named(reference).next();
        self.instances.get(reference).or_else(|| self.by_provider_id(reference)).or_else(named)
    }

    /// Creates instances.
    ///
    /// # Errors
    ///
    /// The request contradicts itself, or a name is taken.
    pub fn create_instances(
        &mut self,
        wish: &NewInstances,
        now: Timestamp,
    ) -> Result<Vec<Instance>, CloudError> {
        let names = names_of(wish)?;
        if let Some(name) = names.iter().find(|name| self.named(name).next().is_some())
            && !wish.allow_duplicate_name
        {
            return Err(CloudError::AlreadyExists(format!("instance {name}")));
        }
        Ok(names
            .into_iter()
            .enumerate()
            .map(|(turn, name)| self.create_instance(name, turn, wish, now))
            .collect())
    }

    fn create_instance(
        &mut self,
        name: String,
        turn: usize,
        wish: &NewInstances,
        now: Timestamp,
    ) -> Instance {
        let id = self.next_id("i");
        let number = self.last_id;
        let zones = if wish.zones.is_empty() { &self.settings.zones } else { &wish.zones };
        let zone = zones.get(turn % zones.len().max(1)).cloned().unwrap_or_default();
        let boot = wish.boot_ms.filter(|boot| *boot > 0).map(Duration::from_millis);
        let pod_cidrs = if self.settings.allot_pod_cidrs { vec![pod_cidr(number)] } else { Vec::new() };
        let instance = Instance {
            provider_id: format!("{}{zone}/{id}", self.settings.provider_id_prefix()),
            cluster_uid: wish.cluster_uid.clone().unwrap_or_default(),
            state: if boot.is_some() { InstanceState::Pending } else { InstanceState::Running },
            instance_type: wish.instance_type.clone().unwrap_or_else(|| DEFAULT_TYPE.to_owned()),
            zone,
            region: self.settings.region.clone(),
            addresses: wish.addresses.clone().unwrap_or_else(|| addresses(&name, number)),
            labels: wish.labels.clone(),
            annotations: wish.annotations.clone(),
            maintenance: None,
            pod_cidrs: wish.pod_cidrs.clone().unwrap_or(pod_cidrs),
            system_uuid: wish
                .system_uuid
                .clone()
                .unwrap_or_else(|| format!("00000000-0000-4000-8000-{number:012x}")),
            created: now,
            due: boot.map(|boot| later(now, boot)),
            name,
            id,
        };
        self.put_instance(instance)
    }

    /// Applies a patch, which sets what it names and removes what it sets to null.
    ///
    /// # Errors
    ///
    /// There is no such instance, or the patch does not fit.
    pub fn patch_instance(&mut self, reference: &str, patch: &Value) -> Result<Instance, CloudError> {
        let instance = patched(&self.existing(reference)?, patch, FIXED)?;
        Ok(self.put_instance(instance))
    }

    /// Stops or starts an instance; a stopped one continues to exist.
    ///
    /// # Errors
    ///
    /// There is no such instance, or it is terminating.
    pub fn set_running(&mut self, reference: &str, running: bool) -> Result<Instance, CloudError> {
        let mut instance = self.existing(reference)?;
        if instance.state == InstanceState::Terminating {
            return Err(CloudError::Invalid(format!("instance {reference} is terminating")));
        }
        instance.state = if running { InstanceState::Running } else { InstanceState::Stopped };
        instance.due = None;
        Ok(self.put_instance(instance))
    }

    /// Terminates an instance: it stays visible as terminating for `linger` (the cloud's default if absent), then it is gone.
    ///
    /// # Errors
    ///
    /// There is no such instance.
    pub fn terminate_instance(
        &mut self,
        reference: &str,
        linger: Option<Duration>,
        now: Timestamp,
    ) -> Result<Instance, CloudError> {
        let mut instance = self.existing(reference)?;
        let linger = linger.unwrap_or(self.settings.terminate_linger);
        instance.state = InstanceState::Terminating;
        instance.due = Some(later(now, linger));
        let instance = self.put_instance(instance);
        self.tick(now);
        Ok(instance)
    }

    /// Deletes an instance at once.
    ///
    /// # Errors
    ///
    /// There is no such instance.
    pub fn delete_instance(&mut self, reference: &str) -> Result<Instance, CloudError> {
        let instance = self.existing(reference)?;
        self.remove_instance(&instance.id);
        Ok(instance)
    }

    /// Deletes at once all instances whose name has this prefix.
    pub fn delete_instances(&mut self, prefix: &str) -> Vec<Instance> {
        let named = self.instances.values().filter(|machine| machine.name.starts_with(prefix));
        let gone: Vec<Instance> = named.cloned().collect();
        gone.iter().for_each(|machine| self.remove_instance(&machine.id));
        gone
    }

    fn existing(&self, reference: &str) -> Result<Instance, CloudError> {
        existing("instance", reference, self.instance(reference).cloned())
    }

    pub(super) fn advance_instance(&mut self, id: &str) {
        let Some(mut instance) = self.instances.get(id).cloned() else { return };
        instance.due = None;
        match instance.state {
            InstanceState::Pending => {
                instance.state = InstanceState::Running;
                self.put_instance(instance);
            }
            InstanceState::Terminating => self.remove_instance(id),
            InstanceState::Running | InstanceState::Stopped => {}
        }
    }

    fn put_instance(&mut self, instance: Instance) -> Instance {
        if let Some(old) = self.instances.insert(instance.id.clone(), instance.clone()) {
            self.index_instance(&old, false);
        }
        self.index_instance(&instance, true);
        self.journal.record(&instance);
        instance
    }

    fn remove_instance(&mut self, id: &str) {
        if let Some(instance) = self.instances.remove(id) {
            self.index_instance(&instance, false);
            self.journal.record(&instance);
        }
    }

    pub(super) fn index_instance(&mut self, instance: &Instance, there: bool) {
        set(&mut self.indexes.by_name, instance.name.clone(), &instance.id, there);
        instance.due.into_iter().for_each(|at| set(&mut self.indexes.due, at, &instance.id, there));
    }
}

fn names_of(wish: &NewInstances) -> Result<Vec<String>, CloudError> {
    let invalid = |message: String| Err(CloudError::Invalid(message));
    if let Some(name) = &wish.name {
        if wish.count.is_some_and(|count| count != 1) || wish.name_pattern.is_some() || wish.first.is_some() {
            return invalid(format!("name {name:?} excludes count, name_pattern and first"));
        }
        if name.is_empty() || name.len() > 253 {
            return invalid(format!("name {name:?} must have 1 to 253 bytes"));
        }
        return Ok(vec![name.clone()]);
    }
    let count = wish.count.unwrap_or(1);
    if count == 0 || count > MAX_BULK {
        return invalid(format!("count {count} must be 1 to {MAX_BULK}"));
    }
    let single = wish.addresses.is_some() || wish.pod_cidrs.is_some() || wish.system_uuid.is_some();
    if count > 1 && single {
        return invalid(
            "addresses, pod_cidrs and system_uuid belong to one instance: create such instances one by one"
                .into(),
        );
    }
    let pattern = wish.name_pattern.as_deref().unwrap_or("node-{}");
    if count > 1 && !pattern.contains("{}") {
        return invalid(format!("name_pattern {pattern:?} needs a {{}} where the number goes"));
    }
    let first = wish.first.unwrap_or(0);
    Ok((0..count).map(|number| pattern.replace("{}", &(first.saturating_add(number)).to_string())).collect())
}

/// Addresses, unique for up to 4 million instances.
fn addresses(name: &str, number: u64) -> Vec<Address> {
    let (high, middle, low) = ((number >> 16) & 0x3f, (number >> 8) & 0xff, number & 0xff);
    vec![
        Address::new(AddressKind::InternalIp, format!("10.{}.{middle}.{low}", 64 + high)),
        Address::new(AddressKind::ExternalIp, format!("100.{}.{middle}.{low}", 64 + high)),
        Address::new(AddressKind::Hostname, name),
        Address::new(AddressKind::InternalDns, format!("{name}.mock.internal")),
    ]
}

/// A /24 of 10.128.0.0/10; the 16384th instance gets the first one's again.
fn pod_cidr(number: u64) -> String {
    let number = number % (1 << 14);
    format!("10.{}.{}.0/24", 128 + (number >> 8), number & 0xff)
}

#[cfg(test)]
mod tests;
