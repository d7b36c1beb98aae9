//! Everything that the cloud has, in one value that can be written down and read back.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use cloudprovider_sdk::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    Balancer, Change, Conditions, ConditionsPatch, HostedCluster, Instance, Quota, Route, Settings, SshKey,
    Volume, index::Indexes, journal::Journal,
};

/// How often each operation of the cloud's own API was used: what shows one call per item instead of one per batch.
pub type CloudCalls = BTreeMap<String, u64>;

/// Everything that the cloud has. Journal, settings and counters of calls are not saved.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Counts every id up.
    pub(super) last_id: u64,
    /// Machines by id.
    pub(super) instances: BTreeMap<String, Instance>,
    /// Balancers by id.
    pub(super) balancers: BTreeMap<String, Balancer>,
    /// Owners of the balancers' firewalls, by the firewall's id.
    pub(super) firewalls: BTreeMap<String, String>,
    /// Addresses that balancers hold.
    pub(super) taken_addresses: BTreeSet<IpAddr>,
    /// Routes by id.
    pub(super) routes: BTreeMap<String, Route>,
    /// Volumes by id.
    pub(super) volumes: BTreeMap<String, Volume>,
    /// Hosted clusters by name.
    pub(super) clusters: BTreeMap<String, HostedCluster>,
    /// SSH keys in the order of their coming.
    pub(super) ssh_keys: Vec<SshKey>,
    /// Upper bounds.
    pub(crate) quota: Quota,
    /// How things are.
    pub(crate) conditions: Conditions,
    #[serde(skip)]
    pub(crate) settings: Settings,
    #[serde(skip)]
    pub(crate) journal: Journal,
    #[serde(skip)]
    pub(super) indexes: Indexes,
    #[serde(skip)]
    pub(super) calls: parking_lot::Mutex<CloudCalls>,
    #[serde(skip)]
    pub(super) generation: u64,
}

impl State {
    /// An empty cloud.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// A cloud as it was written down, under the settings of the present start.
    pub fn restored(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self.instances.clone().values().for_each(|one| self.index_instance(one, true));
        self.balancers.clone().values().for_each(|one| self.index_balancer(one, true));
        self
    }

    /// Grows with every change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn touch(&mut self) {
        self.generation += 1;
    }

    pub(super) fn next_id(&mut self, kind: &str) -> String {
        self.last_id += 1;
        format!("{kind}-{:08}", self.last_id)
    }

    /// Notes one use of the cloud's own API.
    pub fn count_call(&self, operation: &str) {
        *self.calls.lock().entry(operation.to_owned()).or_default() += 1;
    }

    /// Notes one use of the cloud's API and checks that it may be used so.
    ///
    /// # Errors
    ///
    /// When it may not, or the cloud cannot be asked.
    pub fn enter(&self, action: &str) -> Result<()> {
        self.count_call(action);
        self.conditions.allow(action)
    }

    /// How often each operation of the cloud's own API was used.
    pub fn cloud_calls(&self) -> CloudCalls {
        self.calls.lock().clone()
    }

    /// Counts from nothing again.
    pub fn reset_cloud_calls(&self) {
        self.calls.lock().clear();
    }

    /// Lets everything happen that is due.
    pub fn tick(&mut self, now: Timestamp) {
        while let Some((due, id)) = self.indexes.due.first().cloned() {
            if due > now {
                break;
            }
            self.indexes.due.pop_first();
            self.advance_instance(&id);
            self.advance_balancer(&id);
        }
    }

    /// When the next thing is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.indexes.due.first().map(|(due, _)| *due)
    }

    /// The change of machines after `sequence`, for one cluster.
    ///
    /// # Errors
    ///
    /// When that far back is not kept, or was never reached.
    pub fn changes_after(&self, sequence: u64, cluster_uid: &str) -> Result<Vec<Change>> {
        let mut changes = self.journal.after(sequence)?;
        changes.retain(|change| change.cluster_uid.is_empty() || change.cluster_uid == cluster_uid);
        Ok(changes)
    }

    /// Sets all upper bounds.
    pub fn set_quota(&mut self, quota: Quota) -> Quota {
        self.quota = quota;
        self.touch();
        quota
    }

    /// Changes how things are.
    pub fn patch_conditions(&mut self, patch: ConditionsPatch) -> Conditions {
        self.conditions.apply(patch);
        self.touch();
        self.conditions.clone()
    }
}

/// A point in time as the contract says it.
pub(crate) fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
}

/// A point in time so far after another; the far future where that cannot be said.
pub(super) fn later(now: Timestamp, by: Duration) -> Timestamp {
    jiff::SignedDuration::try_from(by).ok().and_then(|by| now.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}
