//! Machines, and what happens to them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cloudprovider_sdk::proto;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    CloudError, State, existing,
    index::{Indexes, ids, set},
    state::later,
};

/// Bulk wishes above this are a slip of the hand.
const MAX_BULK: u32 = 200_000;
const DEFAULT_TYPE: &str = "mock.small";

/// How far a machine is, numbered as in the contract. A machine that is gone is not in the cloud at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    /// Being made.
    Pending = proto::InstanceState::Pending as isize,
    /// Runs.
    Running = proto::InstanceState::Running as isize,
    /// Stopped; can be started again.
    Stopped = proto::InstanceState::Stopped as isize,
    /// On its way out.
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
    /// An IP from outside.
    #[serde(rename = "ExternalIP")]
    ExternalIp = proto::NodeAddressType::ExternalIp as isize,
    /// A name within the cluster's network.
    #[serde(rename = "InternalDNS")]
    InternalDns = proto::NodeAddressType::InternalDns as isize,
    /// A name from outside.
    #[serde(rename = "ExternalDNS")]
    ExternalDns = proto::NodeAddressType::ExternalDns as isize,
}

/// One address of a machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Address {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: AddressKind,
    /// The IP or name.
    pub address: String,
}

impl Address {
    /// An address of this type.
    pub fn new(kind: AddressKind, address: impl Into<String>) -> Self {
        Self { kind, address: address.into() }
    }
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The cloud's id, counted up.
    pub id: String,
    /// `mock://ZONE/ID`; never changes, even when the zone is patched.
    pub provider_id: String,
    /// Name, and name of the Node.
    pub name: String,
    /// Uid of the cluster it belongs to; empty: whichever asks.
    pub cluster_uid: String,
    /// How far it is.
    pub state: InstanceState,
    /// Type, for example `mock.small`.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Region.
    pub region: String,
    /// Addresses in their order.
    pub addresses: Vec<Address>,
    /// Further labels of its node.
    pub labels: BTreeMap<String, String>,
    /// Labels that its node shall lose.
    pub removed_labels: BTreeSet<String>,
    /// Pod CIDRs that the cloud allotted.
    pub pod_cidrs: Vec<String>,
    /// The uuid of its firmware.
    pub system_uuid: String,
    /// When it was made.
    pub created: Timestamp,
    /// When the present state passes into the next by itself.
    pub due: Option<Timestamp>,
}

impl Instance {
    /// As much of it as was asked for.
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
            removed_labels: self.removed_labels.iter().cloned().collect(),
            system_uuid: self.system_uuid.clone(),
            pod_cidrs: if with_pods { self.pod_cidrs.clone() } else { Vec::new() },
            ..bare
        }
    }
}

/// A wish for machines. Everything may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewInstances {
    /// Name of the one machine; not together with `count`.
    pub name: Option<String>,
    /// How many; 1 when left out.
    pub count: Option<u32>,
    /// Name of each, `{}` being its number; `node-{}` when left out.
    pub name_pattern: Option<String>,
    /// The number of the first; 0 when left out.
    pub first: Option<u32>,
    /// Zones, taken in turn; the cloud's own when left out.
    pub zones: Vec<String>,
    /// Type; `mock.small` when left out.
    pub instance_type: Option<String>,
    /// Uid of the cluster; whichever asks when left out.
    pub cluster_uid: Option<String>,
    /// Addresses, only for one machine; made up when left out.
    pub addresses: Option<Vec<Address>>,
    /// Labels of the nodes.
    pub labels: BTreeMap<String, String>,
    /// Only for one machine; made up when left out.
    pub pod_cidrs: Option<Vec<String>>,
    /// Only for one machine; made up when left out.
    pub system_uuid: Option<String>,
    /// How long they are pending, in milliseconds.
    pub boot_ms: Option<u64>,
    /// A second machine of a name is refused unless this is set.
    pub allow_duplicate_name: bool,
}

impl NewInstances {
    /// One machine of this name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// So many machines, `node-0` and on.
    pub fn many(count: u32) -> Self {
        Self { count: Some(count), ..Self::default() }
    }
}

/// A change of a machine. What is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InstancePatch {
    /// All addresses.
    pub addresses: Option<Vec<Address>>,
    /// Labels to set.
    pub labels: BTreeMap<String, String>,
    /// Labels to take away; told to the host as removed.
    pub remove_labels: BTreeSet<String>,
    /// Zone. The provider ID stays.
    pub zone: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// Type.
    pub instance_type: Option<String>,
    /// All pod CIDRs.
    pub pod_cidrs: Option<Vec<String>>,
    /// Uuid of the firmware.
    pub system_uuid: Option<String>,
    /// Uid of the cluster.
    pub cluster_uid: Option<String>,
}

impl State {
    /// All machines, by id.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.instances.values()
    }

    /// The machine with this id, provider ID or name.
    pub fn instance(&self, reference: &str) -> Option<&Instance> {
        let Indexes { by_provider_id, by_name, .. } = &self.indexes;
        let mut found = ids(by_provider_id, reference.to_owned()).chain(ids(by_name, reference.to_owned()));
        self.instances.get(reference).or_else(|| self.instances.get(found.next()?))
    }

    /// Makes machines.
    ///
    /// # Errors
    ///
    /// When the wish contradicts itself or a name is taken.
    pub fn create_instances(
        &mut self,
        wish: &NewInstances,
        now: Timestamp,
    ) -> Result<Vec<Instance>, CloudError> {
        let names = names_of(wish)?;
        if let Some(name) = names.iter().find(|name| self.is_named(name))
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
            provider_id: format!("{}{zone}/{id}", self.settings.provider_id_prefix),
            cluster_uid: wish.cluster_uid.clone().unwrap_or_default(),
            state: if boot.is_some() { InstanceState::Pending } else { InstanceState::Running },
            instance_type: wish.instance_type.clone().unwrap_or_else(|| DEFAULT_TYPE.to_owned()),
            zone,
            region: self.settings.region.clone(),
            addresses: wish.addresses.clone().unwrap_or_else(|| addresses(&name, number)),
            labels: wish.labels.clone(),
            removed_labels: BTreeSet::new(),
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

    /// Changes what the patch names.
    ///
    /// # Errors
    ///
    /// When there is no such machine.
    pub fn patch_instance(&mut self, reference: &str, patch: InstancePatch) -> Result<Instance, CloudError> {
        let mut instance = self.existing(reference)?;
        take_over!(instance, patch: InstancePatch {
            addresses zone region instance_type pod_cidrs system_uuid cluster_uid; labels remove_labels
        });
        for key in labels.keys() {
            instance.removed_labels.remove(key);
        }
        instance.labels.extend(labels);
        for key in remove_labels {
            instance.labels.remove(&key);
            instance.removed_labels.insert(key);
        }
        Ok(self.put_instance(instance))
    }

    /// Stops a machine; it goes on existing.
    ///
    /// # Errors
    ///
    /// When there is no such machine or it is going.
    pub fn stop_instance(&mut self, reference: &str) -> Result<Instance, CloudError> {
        self.set_state(reference, InstanceState::Stopped)
    }

    /// Starts a stopped machine.
    ///
    /// # Errors
    ///
    /// When there is no such machine or it is going.
    pub fn start_instance(&mut self, reference: &str) -> Result<Instance, CloudError> {
        self.set_state(reference, InstanceState::Running)
    }

    fn set_state(&mut self, reference: &str, state: InstanceState) -> Result<Instance, CloudError> {
        let mut instance = self.existing(reference)?;
        if instance.state == InstanceState::Terminating {
            return Err(CloudError::Invalid(format!("instance {reference} is terminating")));
        }
        instance.state = state;
        instance.due = None;
        Ok(self.put_instance(instance))
    }

    /// Terminates a machine: it is seen going for `linger` (the cloud's own when absent), then it is gone.
    ///
    /// # Errors
    ///
    /// When there is no such machine.
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

    /// Takes a machine away at once.
    ///
    /// # Errors
    ///
    /// When there is no such machine.
    pub fn delete_instance(&mut self, reference: &str) -> Result<Instance, CloudError> {
        let instance = self.existing(reference)?;
        self.remove_instance(&instance.id);
        Ok(instance)
    }

    /// Takes away at once all machines whose name begins so.
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
        self.journal.record(&instance.provider_id, &instance.name, &instance.cluster_uid);
        self.touch();
        instance
    }

    fn remove_instance(&mut self, id: &str) {
        if let Some(instance) = self.instances.remove(id) {
            self.index_instance(&instance, false);
            self.journal.record(&instance.provider_id, &instance.name, &instance.cluster_uid);
            self.touch();
        }
    }

    pub(super) fn index_instance(&mut self, instance: &Instance, there: bool) {
        let Indexes { by_provider_id, by_name, by_uuid, due, .. } = &mut self.indexes;
        set(by_provider_id, instance.provider_id.clone(), &instance.id, there);
        set(by_name, instance.name.clone(), &instance.id, there);
        set(by_uuid, instance.system_uuid.to_ascii_lowercase(), &instance.id, there);
        instance.due.into_iter().for_each(|at| set(due, at, &instance.id, there));
    }

    /// Whether a machine has this name.
    pub(super) fn is_named(&self, name: &str) -> bool {
        ids(&self.indexes.by_name, name.to_owned()).next().is_some()
    }
}

fn names_of(wish: &NewInstances) -> Result<Vec<String>, CloudError> {
    let invalid = |message: String| Err(CloudError::Invalid(message));
    if let Some(name) = &wish.name {
        if wish.count.is_some_and(|count| count != 1) || wish.name_pattern.is_some() || wish.first.is_some() {
            return invalid(format!("name {name:?} goes with neither count, name_pattern nor first"));
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
            "addresses, pod_cidrs and system_uuid belong to one machine: make these one by one".into(),
        );
    }
    let pattern = wish.name_pattern.as_deref().unwrap_or("node-{}");
    if count > 1 && !pattern.contains("{}") {
        return invalid(format!("name_pattern {pattern:?} needs a {{}} where the number goes"));
    }
    let first = wish.first.unwrap_or(0);
    Ok((0..count).map(|number| pattern.replace("{}", &(first.saturating_add(number)).to_string())).collect())
}

/// Addresses that are unique up to 4 million machines.
fn addresses(name: &str, number: u64) -> Vec<Address> {
    let (high, middle, low) = ((number >> 16) & 0x3f, (number >> 8) & 0xff, number & 0xff);
    vec![
        Address::new(AddressKind::InternalIp, format!("10.{}.{middle}.{low}", 64 + high)),
        Address::new(AddressKind::ExternalIp, format!("100.{}.{middle}.{low}", 64 + high)),
        Address::new(AddressKind::Hostname, name),
        Address::new(AddressKind::InternalDns, format!("{name}.mock.internal")),
    ]
}

/// A /24 of 10.128.0.0/10; the 16384th machine meets the first one's.
fn pod_cidr(number: u64) -> String {
    let number = number % (1 << 14);
    format!("10.{}.{}.0/24", 128 + (number >> 8), number & 0xff)
}

#[cfg(test)]
mod tests;
