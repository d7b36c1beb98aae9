//! Counts how many nodes may be deleted within a time, and which were. Pure.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::window::Peak;

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
