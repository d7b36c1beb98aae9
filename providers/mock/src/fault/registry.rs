//! The active faults, and which of them a call meets.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Fault;
use crate::contract::{Method, Subject};

/// The active faults.
#[derive(Debug, Default)]
pub struct Faults {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    standing: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    fault: Arc<Fault>,
    seen: u32,
    used: u32,
}

/// A fault and how often it was used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultStatus {
    /// Its number.
    pub id: u64,
    /// How many calls it has met.
    pub used: u32,
    /// It has met as many calls as it may.
    pub spent: bool,
    /// The fault.
    pub fault: Fault,
}

impl Faults {
    /// Adds a fault and returns its status.
    pub fn add(&self, fault: Fault) -> FaultStatus {
        let mut inner = self.inner.lock();
        inner.last += 1;
        let id = inner.last;
        let entry = Entry { id, fault: Arc::new(fault), seen: 0, used: 0 };
        let status = entry.status();
        inner.standing.push(entry);
        status
    }

    /// All faults, including spent ones.
    pub fn list(&self) -> Vec<FaultStatus> {
        self.inner.lock().standing.iter().map(Entry::status).collect()
    }

    /// Removes the faults that `means` selects by number and kind, and returns how many there were.
    pub fn remove(&self, means: impl Fn(u64, &str) -> bool) -> usize {
        let mut inner = self.inner.lock();
        let before = inner.standing.len();
        inner.standing.retain(|entry| !means(entry.id, &entry.fault.kind));
        before - inner.standing.len()
    }

    /// The faults that a call meets, in the order they were added. `roll` returns a random number from 0 to 1.
    pub(crate) fn meet(
        &self,
        method: &Method,
        subjects: &[Subject],
        mut roll: impl FnMut() -> f64,
    ) -> Vec<Arc<Fault>> {
        let mut inner = self.inner.lock();
        let mut met = Vec::new();
        for entry in &mut inner.standing {
            let fault = &entry.fault;
            let right_call = fault.method.as_deref().is_none_or(|name| name == method.name)
                && fault.effect().is_some_and(|effect| effect.fits(method))
                && meant_for(fault, subjects);
            if !right_call || entry.spent() {
                continue;
            }
            entry.seen = entry.seen.saturating_add(1);
            if entry.seen <= fault.skip.unwrap_or(0) || fault.probability.is_some_and(|share| roll() >= share)
            {
                continue;
            }
            entry.used = entry.used.saturating_add(1);
            met.push(Arc::clone(&entry.fault));
        }
        met
    }
}

impl Entry {
    fn spent(&self) -> bool {
        self.fault.times.is_some_and(|times| self.used >= times)
    }

    fn status(&self) -> FaultStatus {
        FaultStatus { id: self.id, used: self.used, spent: self.spent(), fault: (*self.fault).clone() }
    }
}

/// Whether a call has a subject that the fault targets. For a list this is known only from its answer.
fn meant_for(fault: &Fault, subjects: &[Subject]) -> bool {
    let by_item = ["absent", "state", "breach"].contains(&fault.kind.as_str());
    fault.on.is_empty()
        || (by_item && subjects.is_empty())
        || subjects.iter().any(|subject| subject.is_among(&fault.on))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::method;

    fn node(name: &str) -> [Subject; 1] {
        [Subject { key: "k".into(), names: vec![name.into()] }]
    }

    fn fault(text: &str) -> Fault {
        text.parse().unwrap()
    }

    fn met(faults: &Faults, method: &Method) -> usize {
        faults.meet(method, &[], || 0.5).len()
    }

    #[test]
    fn times_and_skip_bound_how_often_a_fault_is_done() {
        let faults = Faults::default();
        faults.add(Fault { skip: Some(1), times: Some(2), ..fault("hang") });
        let seen: Vec<_> = (0..5).map(|_| met(&faults, &method::LIST_ROUTES)).collect();
        assert_eq!(seen, [0, 1, 1, 0, 0]);
        let status = &faults.list()[0];
        assert!(status.spent && status.used == 2);
    }

    #[test]
    fn a_fault_is_done_only_where_it_is_meant() {
        let faults = Faults::default();
        faults.add(Fault { method: Some("ListRoutes".into()), ..fault("hang") });
        faults.add(Fault { on: vec!["node-1*".into()], ..fault("absent") });
        assert_eq!(met(&faults, &method::LIST_ROUTES), 2, "what a list is about shows later");
        assert_eq!(met(&faults, &method::LIST_CLUSTERS), 0);
        let batch = |name| faults.meet(&method::BATCH_GET_INSTANCES, &node(name), || 0.5).len();
        assert_eq!((batch("node-12"), batch("node-2")), (1, 0));
    }

    #[test]
    fn chances_are_taken_by_the_roll() {
        let faults = Faults::default();
        faults.add(Fault { probability: Some(0.3), ..fault("hang") });
        assert_eq!(faults.meet(&method::GET_STATUS, &[], || 0.29).len(), 1);
        assert_eq!(faults.meet(&method::GET_STATUS, &[], || 0.3).len(), 0);
    }

    #[test]
    fn faults_go_one_by_one_or_all_at_once() {
        let faults = Faults::default();
        let first = faults.add(fault("hang"));
        faults.add(fault("absent"));
        let by_id = |id, _: &str| id == first.id;
        assert_eq!((faults.remove(by_id), faults.remove(by_id)), (1, 0));
        assert_eq!(
            (faults.remove(|_, kind| kind == "hang"), faults.remove(|_, kind| kind == "absent")),
            (0, 1)
        );
        assert_eq!(faults.list(), []);
    }
}
