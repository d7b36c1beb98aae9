//! The queue's bookkeeping: which keys wait, run, or are due later. Pure; time is an argument.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::Key;

/// All keys of one queue.
#[derive(Debug)]
pub(super) struct Schedule<K> {
    keys: HashMap<K, Tracked>,
    waiting: VecDeque<K>,
    /// Mirrors the entries in state [`State::Delayed`].
    delayed: BTreeSet<(Instant, K)>,
    closed: bool,
}

/// The state of one key. A key that is idle and never failed has no entry.
#[derive(Debug)]
struct Tracked {
    state: State,
    failures: u32,
    /// When the first of these failures ended.
    failing_since: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Idle,
    Delayed { due: Instant },
    Waiting { since: Instant },
    Running { since: Instant, then: Then },
}

/// What follows once a running key is done.
#[derive(Debug, Clone, Copy)]
enum Then {
    Rest,
    RunAt(Instant),
    RunNow { since: Instant },
}

/// A worker's next step.
pub(super) enum Next<K> {
    Run { key: K, waited: Duration, more: bool },
    WaitUntil(Instant),
    Wait,
    End,
}

impl<K> Default for Schedule<K> {
    fn default() -> Self {
        Self { keys: HashMap::new(), waiting: VecDeque::new(), delayed: BTreeSet::new(), closed: false }
    }
}

impl<K: Key> Schedule<K> {
    /// Schedules the key for now. Returns whether that changed anything.
    pub(super) fn add(&mut self, key: K, now: Instant) -> bool {
        if self.closed {
            return false;
        }
        let entry = self.keys.entry(key.clone()).or_default();
        match entry.state {
            State::Waiting { .. } | State::Running { then: Then::RunNow { .. }, .. } => return false,
            State::Running { since, .. } => {
                entry.state = State::Running { since, then: Then::RunNow { since: now } };
                return true;
            }
            State::Delayed { due } => {
                self.delayed.remove(&(due, key.clone()));
            }
            State::Idle => {}
        }
        entry.state = State::Waiting { since: now };
        self.waiting.push_back(key);
        true
    }

    /// Schedules the key for later. Returns whether to wake a worker.
    pub(super) fn add_at(&mut self, key: K, due: Instant) -> bool {
        if self.closed {
            return false;
        }
        let entry = self.keys.entry(key.clone()).or_default();
        match entry.state {
            State::Waiting { .. } | State::Running { then: Then::RunNow { .. }, .. } => return false,
            State::Running { since, then } => {
                let due = if let Then::RunAt(earlier) = then { earlier.min(due) } else { due };
                entry.state = State::Running { since, then: Then::RunAt(due) };
                return false;
            }
            State::Delayed { due: earlier } if earlier <= due => return false,
            State::Delayed { due: later } => {
                self.delayed.remove(&(later, key.clone()));
            }
            State::Idle => {}
        }
        entry.state = State::Delayed { due };
        self.delayed.insert((due, key));
        true
    }

    /// Counts a failure; returns how many there were before.
    pub(super) fn fail(&mut self, key: &K, now: Instant) -> u32 {
        if self.closed {
            return self.failures(key);
        }
        let entry = self.keys.entry(key.clone()).or_default();
        let before = entry.failures;
        entry.failures = before.saturating_add(1);
        entry.failing_since.get_or_insert(now);
        before
    }

    pub(super) fn forget(&mut self, key: &K) {
        if let Some(entry) = self.keys.get_mut(key) {
            (entry.failures, entry.failing_since) = (0, None);
        }
        self.drop_if_unused(key);
    }

    pub(super) fn failures(&self, key: &K) -> u32 {
        self.keys.get(key).map_or(0, |entry| entry.failures)
    }

    pub(super) fn failing_since(&self, key: &K) -> Option<Instant> {
        self.keys.get(key)?.failing_since
    }

    /// Whether the key waits for a delay, or will once its run ends.
    pub(super) fn is_delayed(&self, key: &K) -> bool {
        let state = self.keys.get(key).map(|entry| entry.state);
        matches!(state, Some(State::Delayed { .. } | State::Running { then: Then::RunAt(_), .. }))
    }

    /// When the key runs next, if it is to: the time is in the past while it waits for a worker or runs.
    pub(super) fn due(&self, key: &K) -> Option<Instant> {
        match self.keys.get(key)?.state {
            State::Idle => None,
            State::Delayed { due } => Some(due),
            State::Waiting { since } | State::Running { since, .. } => Some(since),
        }
    }

    pub(super) fn delayed(&self, now: Instant) -> usize {
        self.delayed.len() - self.delayed.iter().take_while(|(due, _)| *due <= now).count()
    }

    /// The number of keys that a worker could take now.
    pub(super) fn waiting(&self, now: Instant) -> usize {
        self.waiting.len() + self.delayed.iter().take_while(|(due, _)| *due <= now).count()
    }

    pub(super) fn running_since(&self) -> impl Iterator<Item = Instant> {
        self.keys.values().filter_map(|entry| match entry.state {
            State::Running { since, .. } => Some(since),
            _ => None,
        })
    }

    pub(super) fn shut_down(&mut self) {
        self.closed = true;
        for (_, key) in std::mem::take(&mut self.delayed) {
            self.keys.remove(&key);
        }
        // Running keys do not run again.
        for entry in self.keys.values_mut() {
            if let State::Running { since, then: Then::RunAt(_) } = entry.state {
                entry.state = State::Running { since, then: Then::Rest };
            }
        }
    }

    /// Hands out the next key, or says how long there is none.
    pub(super) fn next(&mut self, now: Instant) -> Next<K> {
        if let Some(key) = self.waiting.pop_front() {
            let entry = self.keys.entry(key.clone()).or_default();
            let since = if let State::Waiting { since } = entry.state { since } else { now };
            entry.state = State::Running { since: now, then: Then::Rest };
            let waited = now.saturating_duration_since(since);
            return Next::Run { key, waited, more: !self.waiting.is_empty() };
        }
        match self.delayed.first() {
            Some((due, _)) => Next::WaitUntil(*due),
            // A running key that was added again before the shutdown is still to come.
            None if self.closed && !self.runs_again() => Next::End,
            None => Next::Wait,
        }
    }

    /// Ends a run: how long it took, and whether to wake a worker. `None` if the key was not running.
    pub(super) fn done(&mut self, key: &K, now: Instant) -> Option<(Duration, bool)> {
        let entry = self.keys.get_mut(key)?;
        let State::Running { since, then } = entry.state else { return None };
        let ran = now.saturating_duration_since(since);
        match then {
            Then::Rest => entry.state = State::Idle,
            Then::RunAt(due) => {
                entry.state = State::Delayed { due };
                self.delayed.insert((due, key.clone()));
            }
            Then::RunNow { since } => {
                entry.state = State::Waiting { since };
                self.waiting.push_back(key.clone());
            }
        }
        self.drop_if_unused(key);
        Some((ran, self.closed || !matches!(then, Then::Rest)))
    }

    /// Moves delayed keys that are due to the waiting ones; returns how many.
    pub(super) fn promote_due(&mut self, now: Instant) -> u64 {
        let mut promoted = 0;
        while let Some((due, key)) = self.delayed.pop_first() {
            if due > now {
                self.delayed.insert((due, key));
                break;
            }
            self.keys.entry(key.clone()).or_default().state = State::Waiting { since: due };
            self.waiting.push_back(key);
            promoted += 1;
        }
        promoted
    }

    fn runs_again(&self) -> bool {
        self.keys
            .values()
            .any(|entry| matches!(entry.state, State::Running { then: Then::RunNow { .. }, .. }))
    }

    fn drop_if_unused(&mut self, key: &K) {
        if self.keys.get(key).is_some_and(|entry| matches!(entry.state, State::Idle) && entry.failures == 0) {
            self.keys.remove(key);
        }
    }
}

impl Default for Tracked {
    fn default() -> Self {
        Self { state: State::Idle, failures: 0, failing_since: None }
    }
}
