//! Hands a change of nodes to the balancers that it concerns: once, a moment after the last change.
//!
//! In: changes of nodes. Out: keys in the queue, of those Services whose wanted state is no longer the applied one. The
//! updates themselves travel together, since [`crate::cloud`] gathers what is asked at about the same time.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{
    Shared,
    decide::Standing,
    needs::is_load_balancer,
    nodes::{is_eligible, is_trigger},
    observe::standing,
};
use crate::kube::{cache::Change, node::Node, service::ObjectKey};

/// Nodes that come within this time of each other travel together.
const QUIET: Duration = Duration::from_secs(1);

/// Nobody waits longer than that.
const LONGEST: Duration = Duration::from_secs(10);

/// A balancer as the last call left it.
struct Candidate {
    key: ObjectKey,
    holder: String,
    applied: String,
}

impl Shared {
    /// A change of a node, from the watch: must not wait.
    pub(super) fn see_node(&self, change: &Change<Node>) {
        self.backends.changed();
        let trigger = match change {
            Change::Added(_) | Change::Deleted(_) => true,
            Change::Updated { old, new } => is_trigger(old, new) || self.is_wanted_change(old, new),
        };
        if trigger {
            self.nodes_changed.notify_one();
        }
    }

    /// Whether a provider reads what differs: an address, a label.
    fn is_wanted_change(&self, old: &Arc<Node>, new: &Arc<Node>) -> bool {
        let read = old.addresses != new.addresses
            || old.labels != new.labels
            || old.annotations != new.annotations
            || old.pod_cidrs != new.pod_cidrs
            || old.system_uuid != new.system_uuid;
        read && is_eligible(new)
            && self.context.providers.all().iter().any(|provider| {
                let digest = |node| provider.backend_set(vec![Arc::clone(node)]).digest.clone();
                digest(old) != digest(new)
            })
    }

    /// Fans out after each burst of changes, for as long as it is polled.
    pub(super) async fn fan_out_for_ever(&self) {
        loop {
            let since = burst(&self.nodes_changed).await;
            self.fan_out(since);
        }
    }

    fn fan_out(&self, since: Instant) {
        let mut candidates = Vec::new();
        self.lanes.for_each_idle(|key, lane| {
            // What was tried waits for its time and then takes the newest nodes.
            if let (Some(applied), Some(holder), None) = (&lane.applied, &lane.holder, &lane.attempt) {
                let (holder, applied) = (holder.clone(), applied.clone());
                candidates.push(Candidate { key: key.clone(), holder, applied });
            }
        });
        candidates.retain(|candidate| self.is_outdated(candidate));
        let dirty: HashSet<_> = candidates.into_iter().map(|candidate| candidate.key).collect();
        tracing::debug!(services = dirty.len(), "nodes have changed");
        let sync = self.context.metrics.node_sync(since);
        self.lanes.for_each_idle(|key, lane| {
            if dirty.contains(key) {
                lane.node_sync = Some(Arc::clone(&sync));
            }
        });
        // Whoever is at a balancer may have begun before the change, so it gets another look.
        for key in dirty.into_iter().chain(self.lanes.taken()) {
            self.queue.add(key);
        }
    }

    fn is_outdated(&self, candidate: &Candidate) -> bool {
        let service = self.context.services.get(&candidate.key);
        let provider = self.context.providers.by_name(&candidate.holder);
        let (Some(service), Some(provider)) = (service, provider) else { return false };
        is_load_balancer(&service)
            && !service.deleting
            && !matches!(standing(provider.as_ref()), Standing::Away(_))
            && provider.desired_digest(&service, &self.backends.of(provider.as_ref())) != candidate.applied
    }
}

/// Returns when a burst of changes is over: when it began.
async fn burst(changed: &Notify) -> Instant {
    changed.notified().await;
    let first = Instant::now();
    let mut due = first + QUIET;
    loop {
        tokio::select! {
            biased;
            () = sleep_until(due) => return first,
            () = changed.notified() => due = (Instant::now() + QUIET).min(first + LONGEST),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    async fn duration_of_burst(changes: u32, apart: Duration) -> Duration {
        let changed = Notify::new();
        let begun = Instant::now();
        let change = async {
            for _ in 0..changes {
                changed.notify_one();
                sleep(apart).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = burst(&changed) => begun.elapsed(),
            () = change => Duration::ZERO,
        }
    }

    /// SW-7.
    #[tokio::test(start_paused = true)]
    async fn a_burst_ends_a_second_after_its_last_change_and_after_ten_at_most() {
        let rows = [(1, 0, 1_000), (5, 200, 1_800), (2, 1_500, 1_000), (100, 500, 10_000)];
        for (changes, apart, want) in rows {
            let took = duration_of_burst(changes, Duration::from_millis(apart)).await;
            assert_eq!(took, Duration::from_millis(want), "{changes} changes, {apart} ms apart");
        }
    }
}
