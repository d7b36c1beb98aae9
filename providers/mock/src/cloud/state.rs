//! The whole state of the cloud, as one value that can be saved and restored.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use cloudprovider_sdk::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Balancer, Change, CloudError, Conditions, HostedCluster, Instance, Quota, Route, Settings, SshKey,
    Volume, index::Indexes, journal::Journal,
};

/// How often each operation of the cloud's own API was used; shows whether a batch costs one call or one per item.
pub type CloudCalls = BTreeMap<String, u64>;

/// The whole state of the cloud. Journal, settings and call counters are not saved.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// The last number used in an id.
    pub(super) last_id: u64,
    /// Instances by id.
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
    /// SSH keys in order of arrival.
    pub(super) ssh_keys: Vec<SshKey>,
    /// The quota.
    pub(crate) quota: Quota,
    /// The conditions.
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

    /// A restored cloud, with the current settings.
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

    /// Counts one use of the cloud's own API.
    pub fn count_call(&self, operation: &str) {
        *self.calls.lock().entry(operation.to_owned()).or_default() += 1;
    }

    /// Counts one use of the cloud's API and checks that it is allowed.
    ///
    /// # Errors
    ///
    /// It is not allowed, or the cloud cannot be queried.
    pub fn enter(&self, action: &str) -> Result<()> {
        self.count_call(action);
        self.conditions.allow(action)
    }

    /// How often each operation of the cloud's own API was used.
    pub fn cloud_calls(&self) -> CloudCalls {
        self.calls.lock().clone()
    }

    /// Resets these counters.
    pub fn reset_cloud_calls(&self) {
        self.calls.lock().clear();
    }

    /// Applies everything that is due.
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

    /// When the next change is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.indexes.due.first().map(|(due, _)| *due)
    }

    /// The changes of a cluster's instances after `sequence`.
    ///
    /// # Errors
    ///
    /// The journal does not reach back that far, or has not got there yet.
    pub fn changes_after(&self, sequence: u64, cluster_uid: &str) -> Result<Vec<Change>> {
        let mut changes = self.journal.after(sequence)?;
        changes.retain(|change| change.cluster_uid.is_empty() || change.cluster_uid == cluster_uid);
        Ok(changes)
    }

    /// Sets the quota.
    pub fn set_quota(&mut self, quota: Quota) -> Quota {
        self.quota = quota;
        self.touch();
        quota
    }

    /// Changes the conditions.
    ///
    /// # Errors
    ///
    /// The patch does not fit.
    pub fn patch_conditions(&mut self, patch: &Value) -> Result<Conditions, CloudError> {
        self.conditions.apply(patch)?;
        self.touch();
        Ok(self.conditions.clone())
    }
}

/// A time as a message of the contract.
pub(crate) fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
}

/// A time plus a duration; the far future on overflow.
pub(super) fn later(now: Timestamp, by: Duration) -> Timestamp {
    jiff::SignedDuration::try_from(by).ok().and_then(|by| now.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}
