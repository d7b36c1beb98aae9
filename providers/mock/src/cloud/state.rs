//! The whole state of the cloud, as one value that can be saved and restored; and its indexes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Weak,
    time::Duration,
};

use cloudprovider_sdk::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    Balancer, Conditions, HostedCluster, Instance, Quota, Route, Settings, SshKey, Target, Volume,
    journal::Journal,
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
    /// Owners of firewalls that outlived their balancers, by id. As long as it exists, each balancer of a cluster has one.
    pub(super) left_firewalls: BTreeMap<String, String>,
    /// Routes by id.
    pub(super) routes: BTreeMap<String, Route>,
    /// Volumes by id.
    pub(crate) volumes: BTreeMap<String, Volume>,
    /// Hosted clusters by name.
    pub(crate) clusters: BTreeMap<String, HostedCluster>,
    /// SSH keys in order of arrival.
    pub(crate) ssh_keys: Vec<SshKey>,
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
    pub(crate) calls: parking_lot::Mutex<CloudCalls>,
    /// Grows with every change.
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
        // Whoever carried traffic is gone.
        self.balancers.values_mut().for_each(|one| one.traffic_error.clear());
        self.instances.clone().values().for_each(|one| self.index_instance(one, true));
        self.balancers.clone().values().for_each(|one| self.index_balancer(one, true));
        self
    }

    /// Grows with every change.
    pub fn generation(&self) -> u64 {
        self.generation
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

    /// Applies everything that is due.
    pub fn tick(&mut self, now: Timestamp) {
        while let Some((due, id)) = self.indexes.due.first().cloned()
            && due <= now
        {
            self.indexes.due.pop_first();
            self.advance_instance(&id);
            self.advance_balancer(&id);
            self.generation += 1;
        }
    }

    /// When the next change is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.indexes.due.first().map(|(due, _)| *due)
    }
}

/// Ids by a property, which several objects may share.
pub(super) type Index<K> = BTreeSet<(K, String)>;

/// Ids by properties of their objects; rebuilt after loading.
#[derive(Debug, Default)]
pub(super) struct Indexes {
    /// Instances by name.
    pub(super) by_name: Index<String>,
    /// Balancers by cluster and Service.
    pub(super) balancer_by_key: Index<(String, String)>,
    /// Balancers by name.
    pub(super) balancer_by_name: Index<String>,
    /// By the time at which their next change is due.
    pub(super) due: Index<Timestamp>,
    /// Backend sets that balancers share, by digest: a thousand balancers with the same set hold it once.
    pub(super) backend_sets: BTreeMap<String, Weak<Vec<Target>>>,
}

/// The ids of a key, the oldest first.
pub(super) fn ids<K: Ord + Clone>(index: &Index<K>, key: K) -> impl Iterator<Item = &String> {
    let from = (key.clone(), String::new());
    index.range(from..).take_while(move |(found, _)| *found == key).map(|(_, id)| id)
}

/// Adds an id to a key, or removes it.
pub(super) fn set<K: Ord>(index: &mut Index<K>, key: K, id: &str, there: bool) {
    let entry = (key, id.to_owned());
    if there {
        index.insert(entry);
    } else {
        index.remove(&entry);
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
