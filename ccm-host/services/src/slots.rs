//! Places for calls that create, change or remove balancers, so that a slow cloud is asked for only a few at a time.
//!
//! In: keys that need a place, and how many a provider has: a call that waits within the provider's limits would hold up
//! everything else that is to be done about its balancer. Out: a [`Slot`], or a place in line. Nothing ever waits here: a run without a slot ends,
//! and the key comes back through the queue once a slot is kept for it. In line, work in progress stands before first
//! attempts, and these before retries and checks of balancers that may well serve.

use std::collections::{HashMap, HashSet, VecDeque};

use parking_lot::Mutex;

use super::RunKey;
use ccm_kube::queue::WorkQueue;

/// What a slot is for. A cloud in which creating hangs may well delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Direction {
    Change,
    Remove,
}

/// The order in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    /// The provider is working on it: ask whether it is done.
    Poll,
    First,
    /// Or a check of what may well serve.
    Retry,
    /// Removing what has no owner comes after everything that a user waits for.
    Tidying,
}

const RANKS: usize = Rank::Tidying as usize + 1;

/// One in so many places goes to a rank whose turn it is.
const A_TURN: usize = 4;

type Place = (String, Direction);

#[derive(Debug)]
pub(super) struct Slots {
    queue: WorkQueue<RunKey>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: HashMap<Place, Line>,
    /// Keys with a run under way: it will ask again by itself.
    running: HashSet<RunKey>,
    /// Keys that keep their place beyond the run.
    holding: HashSet<RunKey>,
}

#[derive(Debug, Default)]
struct Line {
    /// The number of places, as last set.
    limit: usize,
    taken: usize,
    /// Keys that were woken, each with a slot kept for it.
    kept: HashSet<RunKey>,
    /// How many were woken so far.
    woken: usize,
    waiting: [VecDeque<RunKey>; RANKS],
}

impl Line {
    /// Puts a key in line; one that stands there moves only forward.
    fn stand(&mut self, key: &RunKey, rank: Rank) {
        let at = self.waiting.iter().position(|waiting| waiting.contains(key));
        if at.is_none_or(|at| (rank as usize) < at) {
            self.leave(key);
            self.waiting[rank as usize].push_back(key.clone());
        }
    }

    fn leave(&mut self, key: &RunKey) {
        self.waiting.iter_mut().for_each(|rank| rank.retain(|other| other != key));
    }

    /// How many places calls of this rank may take: tidying never takes the last ones.
    fn places(&self, rank: usize) -> usize {
        if rank == Rank::Tidying as usize { self.limit.div_ceil(2) } else { self.limit }
    }

    /// The first in line that no run will serve anyway. Each rank comes first now and then: however many stand before it, every
    /// key has its turn.
    fn next(&mut self, running: &HashSet<RunKey>) -> Option<RunKey> {
        let others = Rank::Tidying as usize;
        let begin = if self.woken % A_TURN == A_TURN - 1 { self.woken / A_TURN % others } else { 0 };
        let ranks = (0..others).map(|rank| (begin + rank) % others).chain([others]);
        let used = self.taken + self.kept.len();
        for rank in ranks {
            if used >= self.places(rank) {
                continue;
            }
            let waiting = &mut self.waiting[rank];
            if let Some(at) = waiting.iter().position(|key| !running.contains(key)) {
                self.woken += 1;
                return waiting.remove(at);
            }
        }
        None
    }
}

/// One place, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    slots: &'a Slots,
    place: Place,
}

/// A run of a key. At its end, a slot that was kept for the key and not used goes to the next in line.
#[derive(Debug)]
pub(super) struct Running<'a> {
    slots: &'a Slots,
    key: RunKey,
}

impl Slots {
    pub(super) fn new(queue: WorkQueue<RunKey>) -> Self {
        Self { queue, state: Mutex::default() }
    }

    /// To be held during each run of a key.
    pub(super) fn run(&self, key: &RunKey) -> Running<'_> {
        self.state.lock().running.insert(key.clone());
        Running { slots: self, key: key.clone() }
    }

    /// Takes one of `limit` places, or stands in line for it.
    pub(super) fn take(
        &self,
        (provider, limit): (&str, usize),
        direction: Direction,
        key: &RunKey,
        rank: Rank,
    ) -> Option<Slot<'_>> {
        let place = (provider.to_owned(), direction);
        let mut state = self.state.lock();
        let line = state.lines.entry(place.clone()).or_default();
        line.limit = limit.max(1);
        let is_free = line.kept.remove(key) || line.taken + line.kept.len() < line.places(rank as usize);
        if is_free {
            line.leave(key);
            line.taken += 1;
            return Some(Slot { slots: self, place });
        }
        line.stand(key, rank);
        None
    }

    /// The key's place, if one is kept for it, stays its own until its next run ends.
    pub(super) fn hold(&self, key: &RunKey) {
        let mut state = self.state.lock();
        if state.lines.values().any(|line| line.kept.contains(key)) {
            state.holding.insert(key.clone());
        }
    }

    /// Hands free places to those in line.
    fn hand_on(&self) {
        let mut woken = Vec::new();
        let mut state = self.state.lock();
        let State { lines, running, .. } = &mut *state;
        for line in lines.values_mut() {
            while line.taken + line.kept.len() < line.limit {
                let Some(key) = line.next(running) else { break };
                line.kept.insert(key.clone());
                woken.push(key);
            }
        }
        drop(state);
        woken.into_iter().for_each(|key| self.queue.add(key));
    }
}

impl Slot<'_> {
    /// Keeps the place for the key's next run: the provider goes on with its work meanwhile.
    pub(super) fn hold(self, key: &RunKey) {
        if let Some(line) = self.slots.state.lock().lines.get_mut(&self.place) {
            line.kept.insert(key.clone());
        }
        self.slots.hold(key);
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if let Some(line) = self.slots.state.lock().lines.get_mut(&self.place) {
            line.taken -= 1;
        }
        self.slots.hand_on();
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.slots.state.lock();
            state.running.remove(&self.key);
            if state.holding.remove(&self.key) {
                return;
            }
            state.lines.values_mut().for_each(|line| _ = line.kept.remove(&self.key));
        }
        self.slots.hand_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BACKOFF;
    use ccm_kube::{KubeMetrics, service::ObjectKey};

    fn key(name: &str) -> RunKey {
        RunKey::Service(ObjectKey::new("ns", name))
    }

    fn slots() -> Slots {
        Slots::new(WorkQueue::new("test", BACKOFF, &KubeMetrics::default().queue))
    }

    fn woken(slots: &Slots, name: &str) -> bool {
        slots.queue.due(&key(name)).is_some()
    }

    /// F2, F3: nothing waits inside of a run, and polls stand before first attempts, first attempts before retries.
    #[test]
    fn a_free_place_goes_to_the_first_in_line() {
        let slots = slots();
        let take = |name: &str, rank| slots.take(("cloud", 1), Direction::Change, &key(name), rank);
        let held = take("a", Rank::First);
        assert!(held.is_some());
        for (name, rank) in [("retry", Rank::Retry), ("new", Rank::First), ("poll", Rank::Poll)] {
            assert!(take(name, rank).is_none() && !woken(&slots, name), "{name}");
        }
        assert!(slots.take(("cloud", 1), Direction::Remove, &key("b"), Rank::First).is_some());
        assert!(slots.take(("other", 1), Direction::Change, &key("c"), Rank::First).is_some());
        drop(held);
        assert!(woken(&slots, "poll") && !woken(&slots, "new"));
        assert!(take("late", Rank::Poll).is_none(), "the place is kept");
        let held = take("poll", Rank::Poll);
        assert!(held.is_some());
        drop(held);
        assert!(woken(&slots, "late"));
    }

    /// An edit of what waited for a retry is a first attempt, and a retry of what was edited stays one.
    #[test]
    fn a_key_in_line_moves_only_forward() {
        let slots = slots();
        let take = |name: &str, rank| slots.take(("cloud", 1), Direction::Change, &key(name), rank);
        let held = take("a", Rank::First);
        for (name, rank) in [("b", Rank::Retry), ("c", Rank::Retry), ("c", Rank::First), ("c", Rank::Retry)] {
            assert!(take(name, rank).is_none());
        }
        drop(held);
        assert!(woken(&slots, "c") && !woken(&slots, "b"));
    }

    /// A key that changed its mind passes its place on.
    #[test]
    fn a_place_that_is_not_used_goes_on() {
        let slots = slots();
        let take = |name: &str| slots.take(("cloud", 1), Direction::Change, &key(name), Rank::First);
        let held = take("a");
        assert!(take("b").is_none() && take("c").is_none());
        drop(held);
        assert!(woken(&slots, "b") && !woken(&slots, "c"));
        drop(slots.run(&key("b")));
        assert!(woken(&slots, "c"));
    }

    /// A key that is being run asks again by itself: its place must not stay empty meanwhile.
    #[test]
    fn no_place_is_kept_for_a_key_that_is_busy() {
        let slots = slots();
        let take = |name: &str| slots.take(("cloud", 1), Direction::Change, &key(name), Rank::First);
        let held = take("a");
        assert!(take("busy").is_none() && take("b").is_none());
        let running = slots.run(&key("busy"));
        drop(held);
        assert!(woken(&slots, "b") && !woken(&slots, "busy"));
        drop(running);
        drop(slots.run(&key("b")));
        assert!(woken(&slots, "busy"));
    }

    /// F3: work that goes on in the cloud keeps its place, but not for longer than the next run wants.
    #[test]
    fn a_place_is_held_until_the_work_is_done() {
        let slots = slots();
        let take = |name: &str| slots.take(("cloud", 1), Direction::Change, &key(name), Rank::First);
        let running = slots.run(&key("a"));
        let slot = take("a");
        assert!(slot.is_some());
        assert!(take("b").is_none());
        slot.into_iter().for_each(|slot| slot.hold(&key("a")));
        drop(running);
        assert!(!woken(&slots, "b"));
        let running = slots.run(&key("a"));
        assert!(take("a").is_some());
        drop(running);
        assert!(woken(&slots, "b"));
    }

    /// F9: removing what has no owner leaves room for what users delete.
    #[test]
    fn tidying_never_takes_all_places() {
        let slots = slots();
        let take = |name: &str, rank| slots.take(("cloud", 4), Direction::Remove, &key(name), rank);
        let tidied: Vec<_> =
            ["o1", "o2", "o3"].map(|name| take(name, Rank::Tidying)).into_iter().flatten().collect();
        assert_eq!(tidied.len(), 2);
        assert!(take("user", Rank::First).is_some());
    }

    /// F9: nor are more places handed on to it.
    #[test]
    fn tidying_is_handed_no_last_place() {
        let slots = slots();
        let take = |name: &str, rank| slots.take(("cloud", 2), Direction::Remove, &key(name), rank);
        let held = take("o1", Rank::Tidying);
        let running = slots.run(&key("o2"));
        assert!(held.is_some() && take("o2", Rank::Tidying).is_none());
        drop(running);
        assert!(!woken(&slots, "o2"));
        drop(held);
        assert!(woken(&slots, "o2"));
    }

    /// However many stand before it.
    #[test]
    fn every_rank_has_its_turn() {
        let slots = slots();
        let take = |name: &str, rank| slots.take(("cloud", 1), Direction::Change, &key(name), rank);
        let mut held = take("held", Rank::First);
        assert!(take("retry", Rank::Retry).is_none() && take("new", Rank::First).is_none());
        let turns = (0..100).find(|number| {
            let poll = format!("poll-{number}");
            assert!(take(&poll, Rank::Poll).is_none());
            drop(held.take());
            held = ["retry", "new", &poll].into_iter().find_map(|name| take(name, Rank::Poll));
            woken(&slots, "retry") && woken(&slots, "new")
        });
        assert!(turns.is_some_and(|turns| turns < 4 * A_TURN), "{turns:?}");
    }
}
