//! Counts how many nodes may be deleted within a time, and which were. Pure.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

/// With a control group, this many nodes may be deleted within [`MINUTE`], or [`PACE`] of all if that is more.
const AT_LEAST: usize = 10;
const PACE: f64 = 0.1;
const MINUTE: Duration = Duration::from_secs(60);

/// The limit that a deletion counts towards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) enum Count {
    /// The pace: per minute.
    Pace,
    /// The share: per window.
    Share,
}

/// A deletion that was allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Grant {
    pub(in super::super) at: Instant,
    pub(in super::super) count: Count,
}

#[derive(Debug)]
pub(super) struct Places {
    max_share: f64,
    window: Duration,
    /// By uid. A retry takes no second place.
    granted: HashMap<String, Grant>,
    /// The highest number of nodes within the window.
    peak: Peak,
}

impl Places {
    pub(super) fn new(max_share: f64, window: Duration) -> Self {
        Self { max_share, window, granted: HashMap::new(), peak: Peak::within(window) }
    }

    /// Notes the number of nodes, and forgets grants that no longer count.
    pub(super) fn note(&mut self, now: Instant, total: usize) {
        self.peak.note(now, total);
        let window = self.window;
        self.granted.retain(|_, grant| {
            let counts_for = match grant.count {
                Count::Pace => MINUTE,
                Count::Share => window,
            };
            now.saturating_duration_since(grant.at) < counts_for
        });
    }

    /// How many more nodes may be deleted now under that limit.
    pub(super) fn room(&self, count: Count) -> usize {
        let total = self.peak.largest();
        let all = match count {
            Count::Pace => share_of(total, PACE).max(AT_LEAST),
            Count::Share => share_of(total, self.max_share).max(1),
        };
        all.saturating_sub(self.granted.values().filter(|grant| grant.count == count).count())
    }

    pub(super) fn has(&self, uid: &str) -> bool {
        self.granted.contains_key(uid)
    }

    /// Whether the node has a place already, or takes one now.
    pub(super) fn take(&mut self, uid: &str, count: Count, now: Instant) -> bool {
        if !self.has(uid) {
            if self.room(count) == 0 {
                return false;
            }
            self.granted.insert(uid.to_owned(), Grant { at: now, count });
        }
        true
    }

    /// Loads grants of former or concurrent processes.
    pub(super) fn recall(&mut self, grants: &HashMap<String, Grant>) {
        for (uid, grant) in grants {
            self.granted.entry(uid.clone()).or_insert(*grant);
        }
    }

    pub(super) fn revoke(&mut self, uid: &str) {
        self.granted.remove(uid);
    }

    pub(super) fn granted(&self) -> &HashMap<String, Grant> {
        &self.granted
    }
}

/// The maximum of the numbers seen within a window of time. Holds only numbers that may still become the largest.
#[derive(Debug)]
struct Peak {
    window: Duration,
    /// Later entries are smaller.
    seen: VecDeque<(Instant, usize)>,
}

impl Peak {
    fn within(window: Duration) -> Self {
        Self { window, seen: VecDeque::new() }
    }

    fn note(&mut self, now: Instant, number: usize) {
        while self.seen.back().is_some_and(|(_, before)| *before <= number) {
            self.seen.pop_back();
        }
        self.seen.push_back((now, number));
        let window = self.window;
        // The newest entry is never too old, so that something is always left.
        while self.seen.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= window) {
            self.seen.pop_front();
        }
    }

    /// The largest number; zero if none was seen.
    fn largest(&self) -> usize {
        self.seen.front().map_or(0, |(_, number)| *number)
    }
}

/// A share of a number of nodes, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a cluster has some thousands of nodes, and the share is between 0 and 1"
)]
fn share_of(nodes: usize, share: f64) -> usize {
    (nodes as f64 * share) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_largest_of_the_last_while() {
        let start = Instant::now();
        let mut peak = Peak::within(Duration::from_secs(10));
        assert_eq!(peak.largest(), 0);
        let rows = [
            (0, 5, 5),
            (1, 9, 9),
            (2, 4, 9),
            (3, 6, 9),
            (10, 1, 9),
            (11, 1, 6),
            (13, 1, 1),
            (14, 7, 7),
            (40, 2, 2),
        ];
        for (second, number, want) in rows {
            peak.note(start + Duration::from_secs(second), number);
            assert_eq!(peak.largest(), want, "at {second} s");
        }
    }
}
