//! How many nodes may be deleted within a time, and which were.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

/// With a control group, this many nodes may be deleted within [`MINUTE`], or [`PACE`] of all if that is more.
const AT_LEAST: usize = 10;
const PACE: f64 = 0.1;
const MINUTE: Duration = Duration::from_secs(60);

/// Deletions that were allowed, by uid, and when: those that count for the pace, and those that count for the share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Grants {
    pub(super) pace: HashMap<String, Instant>,
    pub(super) share: HashMap<String, Instant>,
}

impl Grants {
    pub(super) fn has(&self, uid: &str) -> bool {
        self.pace.contains_key(uid) || self.share.contains_key(uid)
    }

    /// Adds those that others allowed.
    pub(super) fn join(&mut self, others: &Self) {
        for (mine, theirs) in [(&mut self.pace, &others.pace), (&mut self.share, &others.share)] {
            theirs.iter().for_each(|(uid, at)| _ = mine.entry(uid.clone()).or_insert(*at));
        }
    }

    pub(super) fn remove(&mut self, uid: &str) {
        self.pace.remove(uid);
        self.share.remove(uid);
    }
}

/// Counts how many nodes may be deleted within a time, and which were.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) granted: Grants,
    /// The numbers of nodes seen within the window, without those before a larger one: the first is the largest.
    seen: VecDeque<(Instant, usize)>,
}

impl Places {
    /// Notes the number of nodes, and forgets grants that no longer count.
    pub(super) fn note(&mut self, now: Instant, window: Duration, total: usize) {
        let within = |at: Instant, window| now.saturating_duration_since(at) < window;
        self.seen.retain(|(at, number)| within(*at, window) && *number > total);
        self.seen.push_back((now, total));
        self.granted.pace.retain(|_, at| within(*at, MINUTE));
        self.granted.share.retain(|_, at| within(*at, window));
    }

    /// Whether the node has a place already, or takes one now: of the pace, or of this share. A retry takes no second
    /// one.
    pub(super) fn take(&mut self, uid: &str, share: Option<f64>, now: Instant) -> bool {
        if self.granted.has(uid) {
            return true;
        }
        let peak = self.seen.front().map_or(0, |(_, number)| *number);
        let (most, granted) = match share {
            None => (part_of(peak, PACE).max(AT_LEAST), &mut self.granted.pace),
            Some(share) => (part_of(peak, share).max(1), &mut self.granted.share),
        };
        let is_free = granted.len() < most;
        if is_free {
            granted.insert(uid.to_owned(), now);
        }
        is_free
    }
}

/// A part of a number of nodes, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a cluster has some thousands of nodes, and the part is between 0 and 1"
)]
fn part_of(nodes: usize, part: f64) -> usize {
    (nodes as f64 * part) as usize
}
