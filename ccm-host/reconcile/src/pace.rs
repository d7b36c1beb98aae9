//! How often what a Node says of itself may cause a question to the cloud. Whoever is root on a worker may change its Node
//! all the time, and the account's rate is everybody's.
//!
//! In: that a node has changed, and when. Out: how long what this causes has to wait.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use ccm_kube::{cache::Change, node::Node};

/// This many at once, then one after each pause.
pub const AT_ONCE: u32 = 10;
const PAUSE: Duration = Duration::from_secs(10);

/// What each node has used up, by name.
#[derive(Debug, Default)]
pub struct NodePaces(Mutex<HashMap<String, Instant>>);

impl NodePaces {
    /// How long the question has to wait that a change of the node causes now.
    pub fn wait(&self, node: &str, now: Instant) -> Duration {
        let mut all = self.0.lock();
        let until = used_up(&all, node, now);
        // Changes that come while it waits make it wait no longer.
        all.insert(node.to_owned(), until.min(now + PAUSE * (AT_ONCE + 1)));
        until.saturating_duration_since(now + PAUSE * AT_ONCE)
    }

    /// Whether a question may be asked now that need not be asked at all; one that may not uses nothing up.
    pub fn take(&self, node: &str, now: Instant) -> bool {
        let mut all = self.0.lock();
        let until = used_up(&all, node, now);
        let is_free = until <= now + PAUSE * AT_ONCE;
        if is_free {
            all.insert(node.to_owned(), until);
        }
        is_free
    }

    /// The same of a change as the watch tells of it: what comes or goes does not wait.
    pub fn of_change(&self, change: &Change<Node>, now: Instant) -> Duration {
        match change {
            Change::Added(_) => Duration::ZERO,
            Change::Updated { new, .. } => self.wait(&new.name, now),
            Change::Deleted(node) => {
                self.forget(&node.name);
                Duration::ZERO
            }
        }
    }

    /// Forgets a node that is gone.
    pub fn forget(&self, node: &str) {
        self.0.lock().remove(node);
    }
}

/// Until when one more question uses up what the node may ask.
fn used_up(all: &HashMap<String, Instant>, node: &str, now: Instant) -> Instant {
    all.get(node).map_or(now, |used| now.max(*used)) + PAUSE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_go_at_once_and_then_one_after_each_pause() {
        let (paces, now) = (NodePaces::default(), Instant::now());
        let waits: Vec<_> = (0..13).map(|_| paces.wait("n", now).as_secs()).collect();
        assert_eq!(waits[..10], [0; 10]);
        assert_eq!(waits[10..], [10, 20, 20], "however many come meanwhile");
        assert_eq!(paces.wait("n", now + PAUSE * 20), Duration::ZERO, "it recovers");
        let taken = |paces: &NodePaces, at| (0..100).filter(|_| paces.take("m", at)).count();
        assert_eq!(taken(&paces, now), 10);
        assert_eq!(taken(&paces, now + PAUSE), 1, "however often it was refused");
    }
}
