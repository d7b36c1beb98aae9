//! The state known about each Service's balancer, and exclusive access to it.
//!
//! In: what was sent, answered and listed. Out: the facts that [`decide`](mod@super::decide) compares with the wanted
//! state. A run takes the lane out of the table, so that nothing else changes it meanwhile, and returns it at its end.
//! Nothing here outlives the process: after a restart one list of the provider's balancers ([`super::sweep`]) fills the
//! lanes; it has the digest of what is applied, but not the Service.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use super::metrics::NodeSync;
use crate::{
    cloud::ServiceCondition,
    kube::service::{Ingress, ObjectKey, Service},
};

/// How far the wanted state and a known one may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    Nothing,
    /// Only the nodes behind the balancer.
    Backends,
    /// The Service, or something unknown.
    Service,
}

/// The state known about one Service's balancer.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    /// The Service as last seen; its uid is the balancer's natural key.
    pub(super) last: Arc<Service>,
    /// Name of the provider that has the balancer; `None` means unknown.
    pub(super) holder: Option<String>,
    pub(super) presence: Presence,
    /// The last digest that this process requested, or that was listed: it tells the class for which a balancer that
    /// is certainly ours was made. `None` means unknown.
    pub(super) made_as: Option<String>,
    /// The state last applied completely. `None` means unknown.
    pub(super) applied: Option<Applied>,
    /// The part that may differ from `applied`, because a later call failed or is in flight.
    pub(super) doubt: Difference,
    /// The entries to publish in the status, once an answer or a list reported them.
    pub(super) ingress: Option<Vec<Ingress>>,
    /// Annotations of an answer that are not written yet; `None` means to remove.
    pub(super) annotations: BTreeMap<String, Option<String>>,
    /// Conditions of an answer that are not written yet.
    pub(super) conditions: BTreeMap<String, ServiceCondition>,
    /// The last attempt, if it must not be repeated at once.
    pub(super) attempt: Option<Attempt>,
    /// The last attempt to give what is applied other nodes while the wanted state has to wait.
    pub(super) upkeep: Option<Attempt>,
    /// Everything is as wanted.
    pub(super) settled: bool,
    /// Another implementation serves the Service, as the provider said of the last call.
    pub(super) released: bool,
    /// The last warning written, so that it is not repeated.
    pub(super) warned: Option<String>,
    /// The wanted state for which the starting Event was emitted.
    pub(super) announced: Option<String>,
    /// Measures the time until the last node change reaches this balancer, too.
    pub(super) node_sync: Option<Arc<NodeSync>>,
    /// Incremented by each call that may change the balancer; tells whether a list is older.
    pub(super) turn: u64,
    sent: Option<Sent>,
}

/// The known state of a balancer.
#[derive(Debug, Clone)]
pub(super) struct Applied {
    /// Digest of Service and backends.
    pub(super) digest: String,
    /// The Service that was applied. `None` if only its digest was listed.
    pub(super) service: Option<Arc<Service>>,
    /// The provider cannot give it other nodes by an update.
    pub(super) needs_ensure: bool,
}

impl Applied {
    /// Of a listed balancer: only the digest is known.
    pub(super) fn listed(digest: String) -> Self {
        Self { digest, service: None, needs_ensure: false }
    }
}

/// Whether a balancer exists, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Unknown,
    /// A complete list did not contain it, or it was deleted.
    Absent,
    /// It was listed or requested.
    Present,
}

/// An attempt that must not be repeated early.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub(super) intent: Intent,
    /// When to retry; `None` means once the Service changes, or at the slow sweep.
    pub(super) until: Option<Instant>,
    /// The attempt did not fail: the provider is working on it.
    pub(super) in_progress: bool,
}

/// The goal of an attempt.
#[derive(Debug, Clone)]
pub(super) enum Intent {
    /// Bring the balancer to the state with this digest.
    Apply(String),
    Remove,
}

/// The state last sent.
#[derive(Debug, Clone)]
struct Sent {
    digest: Option<String>,
    revision: u64,
}

impl Lane {
    /// A lane about which nothing is known.
    pub(super) fn new(service: Arc<Service>) -> Self {
        Self {
            last: service,
            holder: None,
            presence: Presence::Unknown,
            made_as: None,
            applied: None,
            doubt: Difference::Nothing,
            ingress: None,
            annotations: BTreeMap::new(),
            conditions: BTreeMap::new(),
            attempt: None,
            upkeep: None,
            settled: false,
            released: false,
            warned: None,
            announced: None,
            node_sync: None,
            turn: 0,
            sent: None,
        }
    }

    /// Whether the lane is about the Service of this uid.
    pub(super) fn is_of(&self, uid: &str) -> bool {
        self.last.uid == uid
    }

    /// The revision to send with a wanted state (`None` means deleted). It grows when the state differs from the last
    /// one sent, and never starts below the clock, so that it also grows across restarts.
    pub(super) fn revision(&mut self, digest: Option<&str>, wall_micros: u64) -> u64 {
        let last = match &self.sent {
            Some(sent) if sent.digest.as_deref() == digest => return sent.revision,
            Some(sent) => sent.revision,
            None => 0,
        };
        let revision = wall_micros.max(last + 1);
        self.sent = Some(Sent { digest: digest.map(str::to_owned), revision });
        revision
    }

    /// The provider knows a newer revision: makes the next one new even if the state is the same.
    pub(super) fn forget_sent_state(&mut self) {
        if let Some(sent) = &mut self.sent {
            sent.digest = Some(String::new());
        }
    }

    /// Records the start of a call that may change the balancer to the extent of `doubt`.
    pub(super) fn begin_turn(&mut self, doubt: Difference) {
        self.turn += 1;
        self.settled = false;
        self.released = false;
        self.doubt = self.doubt.max(doubt);
    }

    /// Another implementation serves the Service: the status is its own, and a balancer of ours is only kept for the
    /// Service's end, or for its return.
    pub(super) fn release(&mut self) {
        self.released = true;
        self.settled = true;
        self.applied = None;
        self.upkeep = None;
        self.ingress = None;
        self.annotations.clear();
        self.conditions.clear();
    }

    /// Records that the balancer is completely as this Service wants it.
    pub(super) fn is_applied(&mut self, digest: String, service: &Arc<Service>) {
        self.applied = Some(Applied { digest, service: Some(Arc::clone(service)), needs_ensure: false });
        self.doubt = Difference::Nothing;
        self.upkeep = None;
    }

    /// Records that the balancer has other nodes, and is otherwise as before.
    pub(super) fn has_nodes(&mut self, digest: String) {
        if let Some(applied) = &mut self.applied {
            applied.digest = digest;
        }
        if self.doubt == Difference::Backends {
            self.doubt = Difference::Nothing;
        }
        self.upkeep = None;
    }
}

/// The lanes of all Services that concern this host.
#[derive(Debug)]
pub(super) struct Lanes {
    table: Mutex<Table>,
    /// Number of lanes that are not as wanted.
    pending: Gauge,
}

#[derive(Debug, Default)]
struct Table {
    idle: HashMap<ObjectKey, Lane>,
    taken: HashSet<ObjectKey>,
}

/// Exclusive access to the lane of one Service, if it has one.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    pub(super) lane: Option<Lane>,
    lanes: &'a Lanes,
    key: ObjectKey,
    was_pending: bool,
}

impl Lanes {
    /// An empty table. `pending` counts the lanes that are not as wanted.
    pub(super) fn new(pending: Gauge) -> Self {
        Self { table: Mutex::default(), pending }
    }

    /// Takes a lane out; `None` if it is taken already.
    pub(super) fn take(&self, key: &ObjectKey) -> Option<Taken<'_>> {
        let mut table = self.table.lock();
        if !table.taken.insert(key.clone()) {
            return None;
        }
        let lane = table.idle.remove(key);
        let was_pending = is_pending(lane.as_ref());
        Some(Taken { lanes: self, key: key.clone(), lane, was_pending })
    }

    /// The keys of all lanes, idle or taken.
    pub(super) fn keys(&self) -> Vec<ObjectKey> {
        let table = self.table.lock();
        table.idle.keys().chain(&table.taken).cloned().collect()
    }

    /// The turn of each idle lane.
    pub(super) fn turns(&self) -> HashMap<ObjectKey, u64> {
        self.table.lock().idle.iter().map(|(key, lane)| (key.clone(), lane.turn)).collect()
    }

    /// Applies `change`, which must be quick, to every idle lane. Returns the keys of the lanes taken at that moment,
    /// so that none is missed.
    pub(super) fn for_each_idle(&self, mut change: impl FnMut(&ObjectKey, &mut Lane)) -> Vec<ObjectKey> {
        let mut table = self.table.lock();
        for (key, lane) in &mut table.idle {
            change(key, lane);
        }
        table.taken.iter().cloned().collect()
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let lane = self.lane.take();
        let pending = &self.lanes.pending;
        match (self.was_pending, is_pending(lane.as_ref())) {
            (false, true) => _ = pending.inc(),
            (true, false) => _ = pending.dec(),
            _ => {}
        }
        let mut table = self.lanes.table.lock();
        table.taken.remove(&self.key);
        if let Some(lane) = lane {
            table.idle.insert(self.key.clone(), lane);
        }
    }
}

fn is_pending(lane: Option<&Lane>) -> bool {
    lane.is_some_and(|lane| !lane.settled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::fixtures::service;

    fn lane() -> Lane {
        Lane::new(Arc::new(service("web")))
    }

    #[test]
    fn a_revision_grows_only_with_the_wanted_state() {
        let mut lane = lane();
        assert_eq!(lane.revision(Some("a"), 1_000), 1_000, "starts at the clock");
        assert_eq!(lane.revision(Some("a"), 2_000), 1_000, "the same call again");
        assert_eq!(lane.revision(Some("b"), 2_000), 2_000);
        assert_eq!(lane.revision(Some("a"), 1_500), 2_001, "grows though the clock went back");
        assert_eq!(lane.revision(None, 3_000), 3_000, "to be gone is a state");
        assert_eq!(lane.revision(None, 4_000), 3_000);
    }

    #[test]
    fn a_stale_revision_is_replaced_by_a_new_one() {
        let mut lane = lane();
        lane.revision(Some("a"), 1_000);
        lane.forget_sent_state();
        assert_eq!(lane.revision(Some("a"), 500), 1_001);
        assert_eq!(lane.revision(Some("a"), 2_000), 1_001);
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("default", name)
    }

    fn open(lanes: &Lanes, name: &str) {
        lanes.take(&key(name)).unwrap().lane = Some(Lane::new(Arc::new(service(name))));
    }

    /// The cases that upstream tests its service cache for.
    #[test]
    fn lanes_are_made_listed_and_dropped() {
        let lanes = Lanes::new(Gauge::default());
        assert!(lanes.take(&key("a")).unwrap().lane.is_none(), "CACHE-1: nothing is known at first");
        open(&lanes, "a");
        assert!(lanes.take(&key("a")).unwrap().lane.is_some(), "CACHE-3, CACHE-5");
        open(&lanes, "b");
        let mut keys = lanes.keys();
        keys.sort();
        assert_eq!(keys, [key("a"), key("b")], "CACHE-4");
        let mut seen = 0;
        let _taken = lanes.for_each_idle(|_, _| seen += 1);
        assert_eq!(seen, 2, "CACHE-6");
        lanes.take(&key("a")).unwrap().lane = None;
        assert_eq!(lanes.keys(), [key("b")], "CACHE-2");
    }

    /// SW-12: no two workers ever change one balancer.
    #[test]
    fn a_taken_lane_has_one_user() {
        let lanes = Lanes::new(Gauge::default());
        open(&lanes, "a");
        let taken = lanes.take(&key("a"));
        assert!(lanes.take(&key("a")).is_none());
        let busy = lanes.for_each_idle(|key, _| panic!("{key} is taken"));
        assert_eq!(busy, [key("a")]);
        assert!(lanes.turns().is_empty());
        drop(taken);
        assert!(lanes.take(&key("a")).unwrap().lane.is_some(), "given back as it was");
    }

    #[test]
    fn pending_counts_what_is_not_as_wanted() {
        let pending = Gauge::default();
        let lanes = Lanes::new(pending.clone());
        open(&lanes, "a");
        open(&lanes, "b");
        assert_eq!(pending.get(), 2);
        if let Some(lane) = &mut lanes.take(&key("a")).unwrap().lane {
            lane.settled = true;
        }
        assert_eq!(pending.get(), 1);
        lanes.take(&key("b")).unwrap().lane = None;
        assert_eq!(pending.get(), 0);
    }
}
