//! Places among the calls of each provider: one that is slow is asked for only so much at a time, and one that hangs leaves
//! the others theirs.
//!
//! In: keys that need a place, and how many there are. Out: a [`Slot`], or a place in line. Nothing ever waits here: a run
//! without a slot ends, and the key comes back through the queue once a slot is kept for it, which no other key takes. In
//! line, work in progress stands before first attempts, and these before retries and checks of what may well be right.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;

use ccm_kube::queue::{Key, WorkQueue};

/// The order in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The provider is working on it: ask whether it is done.
    Poll,
    First,
    /// Or a check of what may well be right.
    Retry,
    /// Removing what has no owner comes after everything that a user waits for.
    Tidying,
}

/// Those that come first now and then.
const IN_TURN: [Rank; 3] = [Rank::Poll, Rank::First, Rank::Retry];

/// One in so many places goes to a rank whose turn it is.
const A_TURN: usize = 4;

/// A provider, and what it is asked for.
type Place = (String, &'static str);

/// All places.
#[derive(Debug)]
pub struct Slots<K: Key> {
    queue: Arc<WorkQueue<K>>,
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    lines: HashMap<Place, Line<K>>,
    /// Keys with a run under way: it will ask again by itself.
    running: HashSet<K>,
    /// Keys that keep their place beyond the run.
    holding: HashSet<K>,
}

#[derive(Debug)]
struct Line<K> {
    /// The number of places, as last set.
    limit: usize,
    taken: usize,
    /// Keys that were woken, each with a slot kept for it.
    kept: HashSet<K>,
    /// How many were woken so far.
    woken: usize,
    /// How many came so far.
    came: usize,
    /// Those in line, each by its rank and by when it came.
    waiting: BTreeMap<(Rank, usize), K>,
    /// Where each of them stands.
    stands: HashMap<K, (Rank, usize)>,
}

impl<K: Key> Line<K> {
    fn new() -> Self {
        let (kept, waiting, stands) = (HashSet::new(), BTreeMap::new(), HashMap::new());
        Self { limit: 0, taken: 0, kept, woken: 0, came: 0, waiting, stands }
    }

    /// Puts a key in line; one that stands there moves only forward.
    fn stand(&mut self, key: &K, rank: Rank) {
        if self.stands.get(key).is_none_or(|(at, _)| rank < *at) {
            self.leave(key);
            self.came += 1;
            self.waiting.insert((rank, self.came), key.clone());
            self.stands.insert(key.clone(), (rank, self.came));
        }
    }

    fn leave(&mut self, key: &K) {
        if let Some(at) = self.stands.remove(key) {
            self.waiting.remove(&at);
        }
    }

    /// How many places calls of this rank may take: tidying never takes the last ones.
    fn places(&self, rank: Rank) -> usize {
        if rank == Rank::Tidying { self.limit.div_ceil(2) } else { self.limit }
    }

    fn has_place(&self, rank: Rank) -> bool {
        self.taken + self.kept.len() < self.places(rank)
    }

    /// The first in line that no run will serve anyway. Each rank comes first now and then: however many stand before
    /// it, every key has its turn.
    fn next(&mut self, running: &HashSet<K>) -> Option<K> {
        let begin = if self.woken % A_TURN == A_TURN - 1 { self.woken / A_TURN % IN_TURN.len() } else { 0 };
        let ranks = IN_TURN.iter().cycle().skip(begin).take(IN_TURN.len()).chain([&Rank::Tidying]);
        let mut open = ranks.filter(|rank| self.has_place(**rank));
        let next = open.find_map(|rank| {
            let mut line = self.waiting.range((*rank, 0)..=(*rank, usize::MAX)).map(|(_, key)| key);
            line.find(|key| !running.contains(*key)).cloned()
        })?;
        self.leave(&next);
        self.woken += 1;
        Some(next)
    }
}

/// One place, until it is dropped.
#[derive(Debug)]
pub struct Slot<'a, K: Key> {
    slots: &'a Slots<K>,
    place: Place,
}

/// A run of a key. At its end, a slot that was kept for the key and not used goes to the next in line.
#[derive(Debug)]
pub struct Running<'a, K: Key> {
    slots: &'a Slots<K>,
    key: K,
}

impl<K: Key> Slots<K> {
    pub fn new(queue: Arc<WorkQueue<K>>) -> Self {
        let (lines, running, holding) = (HashMap::new(), HashSet::new(), HashSet::new());
        Self { queue, state: Mutex::new(State { lines, running, holding }) }
    }

    /// To be held during each run of a key.
    pub fn run(&self, key: &K) -> Running<'_, K> {
        self.state.lock().running.insert(key.clone());
        Running { slots: self, key: key.clone() }
    }

    /// The key's place, if one is kept for it, stays its own until its next run ends.
    pub fn hold(&self, key: &K) {
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
            while let Some(key) = line.next(running) {
                line.kept.insert(key.clone());
                woken.push(key);
            }
        }
        drop(state);
        woken.into_iter().for_each(|key| self.queue.add(key));
    }

    /// Takes one of the provider's places, of which there are `limit` for what it is asked for, or stands in line for it, and
    /// in no other line any more.
    pub fn take(
        &self,
        (provider, what): (&str, &'static str),
        limit: usize,
        key: &K,
        rank: Rank,
    ) -> Option<Slot<'_, K>> {
        let place = (provider.to_owned(), what);
        let mut state = self.state.lock();
        let mut is_freed = false;
        for (_, line) in state.lines.iter_mut().filter(|(of, _)| **of != place) {
            line.leave(key);
            is_freed |= line.kept.remove(key);
        }
        let line = state.lines.entry(place.clone()).or_insert_with(Line::new);
        line.limit = limit.max(1);
        let is_taken = line.kept.remove(key) || line.has_place(rank);
        if is_taken {
            line.leave(key);
            line.taken += 1;
        } else {
            line.stand(key, rank);
        }
        drop(state);
        if is_freed {
            self.hand_on();
        }
        is_taken.then(|| Slot { slots: self, place })
    }
}

impl<K: Key> Slot<'_, K> {
    /// Keeps the place for the key's next run: the provider goes on with its work meanwhile.
    pub fn hold(self, key: &K) {
        if let Some(line) = self.slots.state.lock().lines.get_mut(&self.place) {
            line.kept.insert(key.clone());
        }
        self.slots.hold(key);
    }
}

impl<K: Key> Drop for Slot<'_, K> {
    fn drop(&mut self) {
        if let Some(line) = self.slots.state.lock().lines.get_mut(&self.place) {
            line.taken -= 1;
        }
        self.slots.hand_on();
    }
}

impl<K: Key> Drop for Running<'_, K> {
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
    use std::time::Duration;

    use super::*;
    use ccm_kube::{KubeMetrics, queue::Backoff};

    fn slots() -> Slots<String> {
        let backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(1) };
        Slots::new(WorkQueue::new("test", backoff, &KubeMetrics::default().queue))
    }

    fn woken(slots: &Slots<String>, name: &str) -> bool {
        slots.queue.due(&name.to_owned()).is_some()
    }

    /// A Service that moves to another provider: its place, or its stand, at the one before is the next one's.
    #[test]
    fn who_goes_elsewhere_keeps_no_place() {
        for is_kept in [false, true] {
            let slots = slots();
            let take = |cloud, name: &str| slots.take((cloud, ""), 1, &name.to_owned(), Rank::First);
            let mut held = take("cloud", "a");
            assert!(take("cloud", "goes").is_none() && take("cloud", "b").is_none());
            if is_kept {
                held = None;
            }
            let elsewhere = take("other", "goes");
            assert!(elsewhere.is_some());
            drop(held);
            assert!(woken(&slots, "b"), "{is_kept}");
            assert_eq!(woken(&slots, "goes"), is_kept);
        }
    }

    /// F2, F3: nothing waits inside of a run, and polls stand before first attempts, first attempts before retries.
    #[test]
    fn a_free_place_goes_to_the_first_in_line() {
        let slots = slots();
        let take = |name: &str, rank| slots.take(("cloud", ""), 1, &name.to_owned(), rank);
        let held = take("a", Rank::First);
        assert!(held.is_some());
        for (name, rank) in [("retry", Rank::Retry), ("new", Rank::First), ("poll", Rank::Poll)] {
            assert!(take(name, rank).is_none() && !woken(&slots, name), "{name}");
        }
        assert!(slots.take(("removals", ""), 1, &"b".to_owned(), Rank::First).is_some());
        assert!(slots.take(("other", ""), 1, &"c".to_owned(), Rank::First).is_some());
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
        let take = |name: &str, rank| slots.take(("cloud", ""), 1, &name.to_owned(), rank);
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
        let take = |name: &str| slots.take(("cloud", ""), 1, &name.to_owned(), Rank::First);
        let held = take("a");
        assert!(take("b").is_none() && take("c").is_none());
        drop(held);
        assert!(woken(&slots, "b") && !woken(&slots, "c"));
        drop(slots.run(&"b".to_owned()));
        assert!(woken(&slots, "c"));
    }

    /// A key that is being run asks again by itself: its place must not stay empty meanwhile.
    #[test]
    fn no_place_is_kept_for_a_key_that_is_busy() {
        let slots = slots();
        let take = |name: &str| slots.take(("cloud", ""), 1, &name.to_owned(), Rank::First);
        let held = take("a");
        assert!(take("busy").is_none() && take("b").is_none());
        let running = slots.run(&"busy".to_owned());
        drop(held);
        assert!(woken(&slots, "b") && !woken(&slots, "busy"));
        drop(running);
        drop(slots.run(&"b".to_owned()));
        assert!(woken(&slots, "busy"));
    }

    /// F3: work that goes on in the cloud keeps its place, but not for longer than the next run wants.
    #[test]
    fn a_place_is_held_until_the_work_is_done() {
        let slots = slots();
        let take = |name: &str| slots.take(("cloud", ""), 1, &name.to_owned(), Rank::First);
        let running = slots.run(&"a".to_owned());
        let slot = take("a");
        assert!(slot.is_some());
        assert!(take("b").is_none());
        slot.into_iter().for_each(|slot| slot.hold(&"a".to_owned()));
        drop(running);
        assert!(!woken(&slots, "b"));
        let running = slots.run(&"a".to_owned());
        assert!(take("a").is_some());
        drop(running);
        assert!(woken(&slots, "b"));
    }

    /// F9: removing what has no owner leaves room for what users delete.
    #[test]
    fn tidying_never_takes_all_places() {
        let slots = slots();
        let take = |name: &str, rank| slots.take(("cloud", ""), 4, &name.to_owned(), rank);
        let tidied: Vec<_> =
            ["o1", "o2", "o3"].map(|name| take(name, Rank::Tidying)).into_iter().flatten().collect();
        assert_eq!(tidied.len(), 2);
        assert!(take("user", Rank::First).is_some());
    }

    /// F9: nor are more places handed on to it.
    #[test]
    fn tidying_is_handed_no_last_place() {
        let slots = slots();
        let take = |name: &str, rank| slots.take(("cloud", ""), 2, &name.to_owned(), rank);
        let held = take("o1", Rank::Tidying);
        let running = slots.run(&"o2".to_owned());
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
        let take = |name: &str, rank| slots.take(("cloud", ""), 1, &name.to_owned(), rank);
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
