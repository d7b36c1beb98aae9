//! What happens to machines.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::{
    Address, AddressKind, CloudError, Instance, InstancePatch, InstanceState, NewInstances, State,
    state::later,
};

/// Bulk wishes above this are a slip of the hand.
const MAX_BULK: u32 = 200_000;
const DEFAULT_TYPE: &str = "mock.small";

impl State {
    /// All machines, by id.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.instances.values()
    }

    /// The machine with this id, provider ID or name.
    #[must_use]
    pub fn instance(&self, reference: &str) -> Option<&Instance> {
        self.instance_id(reference).and_then(|id| self.instances.get(&id))
    }

    fn instance_id(&self, reference: &str) -> Option<String> {
        if self.instances.contains_key(reference) {
            return Some(reference.to_owned());
        }
        if let Some(id) = self.indexes.by_provider_id.get(reference) {
            return Some(id.clone());
        }
        self.indexes.by_name.get(reference).and_then(|ids| ids.first().cloned())
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
        if let Some(name) = names.iter().find(|name| self.indexes.by_name.contains_key(*name))
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
        self.put_instance(instance.clone(), now);
        instance
    }

    /// Changes what the patch names.
    ///
    /// # Errors
    ///
    /// When there is no such machine.
    pub fn patch_instance(
        &mut self,
        reference: &str,
        patch: InstancePatch,
        now: Timestamp,
    ) -> Result<Instance, CloudError> {
        let mut instance = self.existing(reference)?;
        let InstancePatch {
            addresses,
            labels,
            remove_labels,
            zone,
            region,
            instance_type,
            pod_cidrs,
            system_uuid,
            cluster_uid,
        } = patch;
        instance.addresses = addresses.unwrap_or(instance.addresses);
        for key in labels.keys() {
            instance.removed_labels.remove(key);
        }
        instance.labels.extend(labels);
        for key in remove_labels {
            instance.labels.remove(&key);
            instance.removed_labels.insert(key);
        }
        instance.zone = zone.unwrap_or(instance.zone);
        instance.region = region.unwrap_or(instance.region);
        instance.instance_type = instance_type.unwrap_or(instance.instance_type);
        instance.pod_cidrs = pod_cidrs.unwrap_or(instance.pod_cidrs);
        instance.system_uuid = system_uuid.unwrap_or(instance.system_uuid);
        instance.cluster_uid = cluster_uid.unwrap_or(instance.cluster_uid);
        self.put_instance(instance.clone(), now);
        Ok(instance)
    }

    /// Stops a machine; it goes on existing.
    ///
    /// # Errors
    ///
    /// When there is no such machine or it is going.
    pub fn stop_instance(&mut self, reference: &str, now: Timestamp) -> Result<Instance, CloudError> {
        self.set_state(reference, InstanceState::Stopped, now)
    }

    /// Starts a stopped machine.
    ///
    /// # Errors
    ///
    /// When there is no such machine or it is going.
    pub fn start_instance(&mut self, reference: &str, now: Timestamp) -> Result<Instance, CloudError> {
        self.set_state(reference, InstanceState::Running, now)
    }

    fn set_state(
        &mut self,
        reference: &str,
        state: InstanceState,
        now: Timestamp,
    ) -> Result<Instance, CloudError> {
        let mut instance = self.existing(reference)?;
        if instance.state == InstanceState::Terminating {
            return Err(CloudError::Invalid(format!("instance {reference} is terminating")));
        }
        instance.state = state;
        instance.due = None;
        self.put_instance(instance.clone(), now);
        Ok(instance)
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
        self.put_instance(instance.clone(), now);
        self.tick(now);
        Ok(instance)
    }

    /// Takes a machine away at once.
    ///
    /// # Errors
    ///
    /// When there is no such machine.
    pub fn delete_instance(&mut self, reference: &str, now: Timestamp) -> Result<Instance, CloudError> {
        let instance = self.existing(reference)?;
        self.remove_instance(&instance.id, now);
        Ok(instance)
    }

    /// Takes away at once all machines whose name begins so.
    pub fn delete_instances(&mut self, prefix: &str, now: Timestamp) -> Vec<Instance> {
        let named = self.instances.values().filter(|machine| machine.name.starts_with(prefix));
        let gone: Vec<Instance> = named.cloned().collect();
        gone.iter().for_each(|machine| self.remove_instance(&machine.id, now));
        gone
    }

    fn existing(&self, reference: &str) -> Result<Instance, CloudError> {
        self.instance(reference).cloned().ok_or_else(|| CloudError::NotFound(format!("instance {reference}")))
    }

    pub(super) fn advance_instance(&mut self, id: &str, now: Timestamp) {
        let Some(mut instance) = self.instances.get(id).cloned() else { return };
        instance.due = None;
        match instance.state {
            InstanceState::Pending => {
                instance.state = InstanceState::Running;
                self.put_instance(instance, now);
            }
            InstanceState::Terminating => self.remove_instance(id, now),
            InstanceState::Running | InstanceState::Stopped => {}
        }
    }

    fn put_instance(&mut self, instance: Instance, now: Timestamp) {
        if let Some(old) = self.instances.get(&instance.id).cloned() {
            self.unindex_instance(&old);
        }
        self.index_instance(&instance);
        self.journal.record(now, &instance.provider_id, &instance.name, &instance.cluster_uid);
        self.instances.insert(instance.id.clone(), instance);
        self.touch();
    }

    fn remove_instance(&mut self, id: &str, now: Timestamp) {
        if let Some(instance) = self.instances.remove(id) {
            self.unindex_instance(&instance);
            self.journal.record(now, &instance.provider_id, &instance.name, &instance.cluster_uid);
            self.touch();
        }
    }

    pub(super) fn index_instance(&mut self, instance: &Instance) {
        let id = &instance.id;
        self.indexes.by_provider_id.insert(instance.provider_id.clone(), id.clone());
        self.indexes.by_name.entry(instance.name.clone()).or_default().insert(id.clone());
        self.indexes.by_uuid.insert(instance.system_uuid.to_ascii_lowercase(), id.clone());
        if let Some(due) = instance.due {
            self.indexes.due.insert((due, id.clone()));
        }
    }

    fn unindex_instance(&mut self, instance: &Instance) {
        let id = &instance.id;
        self.indexes.by_provider_id.remove(&instance.provider_id);
        if let Some(ids) = self.indexes.by_name.get_mut(&instance.name) {
            ids.remove(id);
            if ids.is_empty() {
                self.indexes.by_name.remove(&instance.name);
            }
        }
        let uuid = instance.system_uuid.to_ascii_lowercase();
        if self.indexes.by_uuid.get(&uuid) == Some(id) {
            self.indexes.by_uuid.remove(&uuid);
        }
        if let Some(due) = instance.due {
            self.indexes.due.remove(&(due, id.clone()));
        }
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
