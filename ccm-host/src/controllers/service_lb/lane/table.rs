//! The table of all lanes. A taken lane belongs to its taker, who returns it by dropping it.

use std::{
    collections::{HashMap, HashSet},
    ops::{Deref, DerefMut},
    sync::Arc,
};

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;

use super::Lane;
use crate::kube::service::ObjectKey;

/// The lanes of all Services that concern this host. Cheap to clone.
#[derive(Debug, Clone)]
pub(in crate::controllers::service_lb) struct Lanes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
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
pub(in crate::controllers::service_lb) struct Taken {
    lanes: Lanes,
    key: ObjectKey,
    lane: Option<Lane>,
    was_pending: bool,
}

impl Lanes {
    /// An empty table. `pending` counts the lanes that are not as wanted.
    pub(in crate::controllers::service_lb) fn new(pending: Gauge) -> Self {
        Self(Arc::new(Shared { table: Mutex::default(), pending }))
    }

    /// Takes a lane out; `None` if it is taken already.
    pub(in crate::controllers::service_lb) fn take(&self, key: &ObjectKey) -> Option<Taken> {
        let mut table = self.0.table.lock();
        if !table.taken.insert(key.clone()) {
            return None;
        }
        let lane = table.idle.remove(key);
        let was_pending = is_pending(lane.as_ref());
        Some(Taken { lanes: self.clone(), key: key.clone(), lane, was_pending })
    }

    /// The keys of all lanes, idle or taken.
    pub(in crate::controllers::service_lb) fn keys(&self) -> Vec<ObjectKey> {
        let table = self.0.table.lock();
        table.idle.keys().chain(&table.taken).cloned().collect()
    }

    /// The turn of each idle lane.
    pub(in crate::controllers::service_lb) fn turns(&self) -> HashMap<ObjectKey, u64> {
        self.0.table.lock().idle.iter().map(|(key, lane)| (key.clone(), lane.turn)).collect()
    }

    /// Applies `change`, which must be quick, to every idle lane. Returns the keys of the lanes taken at that moment,
    /// so that none is missed.
    pub(in crate::controllers::service_lb) fn for_each_idle(
        &self,
        mut change: impl FnMut(&ObjectKey, &mut Lane),
    ) -> Vec<ObjectKey> {
        let mut table = self.0.table.lock();
        for (key, lane) in &mut table.idle {
            change(key, lane);
        }
        table.taken.iter().cloned().collect()
    }
}

impl Deref for Taken {
    type Target = Option<Lane>;

    fn deref(&self) -> &Option<Lane> {
        &self.lane
    }
}

impl DerefMut for Taken {
    fn deref_mut(&mut self) -> &mut Option<Lane> {
        &mut self.lane
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let lane = self.lane.take();
        let pending = &self.lanes.0.pending;
        match (self.was_pending, is_pending(lane.as_ref())) {
            (false, true) => _ = pending.inc(),
            (true, false) => _ = pending.dec(),
            _ => {}
        }
        let mut table = self.lanes.0.table.lock();
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

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("default", name)
    }

    fn open(lanes: &Lanes, name: &str) {
        *lanes.take(&key(name)).unwrap() = Some(Lane::new(Arc::new(service(name))));
    }

    /// The cases that upstream tests its service cache for.
    #[test]
    fn lanes_are_made_listed_and_dropped() {
        let lanes = Lanes::new(Gauge::default());
        assert!(lanes.take(&key("a")).unwrap().is_none(), "CACHE-1: nothing is known at first");
        open(&lanes, "a");
        assert!(lanes.take(&key("a")).unwrap().is_some(), "CACHE-3, CACHE-5");
        open(&lanes, "b");
        let mut keys = lanes.keys();
        keys.sort();
        assert_eq!(keys, [key("a"), key("b")], "CACHE-4");
        let mut seen = 0;
        let _taken = lanes.for_each_idle(|_, _| seen += 1);
        assert_eq!(seen, 2, "CACHE-6");
        *lanes.take(&key("a")).unwrap() = None;
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
        assert!(lanes.take(&key("a")).unwrap().is_some(), "given back as it was");
    }

    #[test]
    fn pending_counts_what_is_not_as_wanted() {
        let pending = Gauge::default();
        let lanes = Lanes::new(pending.clone());
        open(&lanes, "a");
        open(&lanes, "b");
        assert_eq!(pending.get(), 2);
        if let Some(lane) = &mut *lanes.take(&key("a")).unwrap() {
            lane.settled = true;
        }
        assert_eq!(pending.get(), 1);
        *lanes.take(&key("b")).unwrap() = None;
        assert_eq!(pending.get(), 0);
    }
}
