//! Passes changes of nodes on to the balancers that they concern.
//!
//! In: changes of nodes. Out: the keys, in the queue, of Services whose balancers do not have the current nodes. The
//! updates themselves are batched by [`crate::cloud`], which gathers requests made at about the same time.

mod pace;

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use self::pace::{Gathered, Pace};
use super::{
    Controller,
    decide::Standing,
    nodes::{is_eligible, is_trigger},
    observe::standing,
};
use crate::{
    cloud::{BackendSet, covers_backends},
    controllers::taint,
    kube::{cache::Change, node::Node},
};

/// Changes of nodes that are still to be passed on.
#[derive(Debug, Default)]
pub(super) struct NodeChanges {
    gathered: Mutex<Option<Gathered>>,
    more: Notify,
}

impl NodeChanges {
    fn add(&self, is_urgent: bool) {
        let now = Instant::now();
        let mut gathered = self.gathered.lock();
        let gathered = gathered.get_or_insert(Gathered { first: now, last: now, urgent: None });
        gathered.last = now;
        if is_urgent {
            gathered.urgent.get_or_insert(now);
        }
        self.more.notify_one();
    }

    /// Waits until it is time to pass changes on; returns when the first of them came.
    async fn next(&self, pace: &mut Pace) -> Instant {
        loop {
            let due = self.gathered.lock().map(|gathered| pace.due(&gathered));
            let now = Instant::now();
            match due {
                None => self.more.notified().await,
                Some(due) if due > now => tokio::select! {
                    () = sleep_until(due) => {}
                    () = self.more.notified() => {}
                },
                Some(_) => {
                    let Some(gathered) = self.gathered.lock().take() else { continue };
                    pace.departed(&gathered, now);
                    return gathered.first;
                }
            }
        }
    }
}

impl Controller {
    pub(super) fn node_changed(&self, change: &Change<Node>) {
        let (is_in_set, is_reason) = match change {
            Change::Added(_) | Change::Deleted(_) => (true, true),
            Change::Updated { old, new } => {
                let differs = is_eligible(new) && self.differs_for_a_provider(old, new);
                let came_up = is_new(old) && !is_new(new);
                (differs || is_eligible(old) != is_eligible(new), is_trigger(old, new) || differs || came_up)
            }
        };
        if is_in_set {
            self.backends.changed();
        }
        if is_reason {
            // A node still to be initialised will change again at once: wait, and pass it on complete.
            let is_urgent = matches!(change, Change::Deleted(_)) || !is_new(change.object());
            self.node_changes.add(is_urgent);
        }
    }

    /// Whether a provider reads what differs: the provider ID, an address, a label, a taint.
    fn differs_for_a_provider(&self, old: &Arc<Node>, new: &Arc<Node>) -> bool {
        let may_be_read = old.uid != new.uid
            || old.provider_id != new.provider_id
            || old.addresses != new.addresses
            || old.labels != new.labels
            || old.annotations != new.annotations
            || old.pod_cidrs != new.pod_cidrs
            || old.system_uuid != new.system_uuid
            || old.taints != new.taints
            || old.unschedulable != new.unschedulable
            || old.deletion_time != new.deletion_time
            || ready(old) != ready(new);
        may_be_read
            && self.parts.providers.all().iter().any(|provider| {
                let digest = |node| provider.backend_set(vec![Arc::clone(node)]).digest.clone();
                digest(old) != digest(new)
            })
    }

    /// Passes changes on for as long as it is polled.
    pub(super) async fn fan_out_for_ever(&self) {
        let mut pace = Pace::default();
        loop {
            let since = self.node_changes.next(&mut pace).await;
            self.fan_out(since);
        }
    }

    fn fan_out(&self, since: Instant) {
        let sets = self.sets();
        let sync = self.metrics.node_sync(since);
        let mut outdated = Vec::new();
        let taken = self.lanes.for_each_idle(|key, lane| {
            if let (Some(applied), Some(holder)) = (&lane.applied, &lane.holder)
                && sets.get(holder).is_some_and(|set| !covers_backends(&applied.digest, &set.digest))
            {
                lane.node_sync.get_or_insert_with(|| Arc::clone(&sync));
                outdated.push(key.clone());
            }
        });
        tracing::debug!(services = outdated.len(), "nodes have changed");
        // A worker that holds a lane may have begun before the change, so requeue its Service, too.
        for key in outdated.into_iter().chain(taken) {
            self.queue.add(key);
        }
    }

    /// The nodes as each reachable provider wants them.
    fn sets(&self) -> HashMap<String, Arc<BackendSet>> {
        let providers = self.parts.providers.all().iter();
        providers
            .filter(|provider| !matches!(standing(provider.as_ref()), Standing::Away(_)))
            .map(|provider| (provider.name().to_owned(), self.backends.of(provider.as_ref())))
            .collect()
    }
}

/// The status of the Ready condition, without its heartbeats.
fn ready(node: &Node) -> Option<&str> {
    node.condition("Ready").map(|ready| ready.status.as_str())
}

/// Whether the cloud's part of the node is still missing.
fn is_new(node: &Node) -> bool {
    node.has_taint(taint::UNINITIALIZED)
}
