//! Passes changes of nodes on to the balancers that they concern: the first of a burst at once, the others less often the
//! longer it lasts.
//!
//! In: changes of nodes. Out: the keys, in the queue, of Services whose balancers do not have the current nodes. The
//! updates themselves are batched by [`crate::cloud`], which gathers requests made at about the same time.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{
    Controller,
    backends::{is_eligible, is_trigger},
    decide::Standing,
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

/// Changes within this time of the first urgent one join it: creating one node takes several writes.
const GATHER: Duration = Duration::from_millis(50);
/// Longest wait of changes that are not urgent; a pause of this length ends a burst.
const QUIET: Duration = Duration::from_secs(1);
/// Longest wait of any change, in a storm.
const LONGEST: Duration = Duration::from_secs(10);

/// Changes that wait.
#[derive(Debug, Clone, Copy)]
struct Gathered {
    /// When the first of them came.
    first: Instant,
    /// When the last of them came.
    last: Instant,
    /// When the first urgent one came.
    urgent: Option<Instant>,
}

#[derive(Debug, Default)]
struct Pace {
    /// The current burst: its first change, and when changes were last passed on.
    burst: Option<(Instant, Instant)>,
}

impl Pace {
    /// When to pass these changes on.
    fn due(&self, gathered: &Gathered) -> Instant {
        let settled = gathered.first + QUIET;
        let soon = gathered.urgent.map_or(settled, |urgent| settled.min(urgent + GATHER));
        match self.burst_of(gathered) {
            Some((begun, departed)) => {
                let apart = (departed - begun).clamp(QUIET, LONGEST);
                soon.max((departed + apart).min(gathered.last + QUIET))
            }
            None => soon,
        }
    }

    /// Records that these changes were passed on.
    fn departed(&mut self, gathered: &Gathered, now: Instant) {
        let begun = self.burst_of(gathered).map_or(gathered.first, |(begun, _)| begun);
        self.burst = Some((begun, now));
    }

    fn burst_of(&self, gathered: &Gathered) -> Option<(Instant, Instant)> {
        self.burst.filter(|(_, departed)| gathered.first <= *departed + QUIET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When changes that come at these milliseconds are passed on.
    fn departures(changes: impl IntoIterator<Item = (u64, bool)>) -> Vec<u64> {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut pace = Pace::default();
        let mut gathered: Option<Gathered> = None;
        let mut departures = Vec::new();
        let mut depart = |gathered: &mut Option<Gathered>, pace: &mut Pace, until: Option<Instant>| {
            if let Some(waiting) = *gathered
                && until.is_none_or(|until| pace.due(&waiting) < until)
            {
                let due = pace.due(&waiting);
                pace.departed(&waiting, due);
                departures.push(u64::try_from((due - start).as_millis()).unwrap());
                *gathered = None;
            }
        };
        for (time, urgent) in changes {
            let now = at(time);
            depart(&mut gathered, &mut pace, Some(now));
            let waiting = gathered.get_or_insert(Gathered { first: now, last: now, urgent: None });
            waiting.last = now;
            if urgent {
                waiting.urgent.get_or_insert(now);
            }
        }
        depart(&mut gathered, &mut pace, None);
        departures
    }

    /// SW-7, E7.
    #[test]
    fn the_first_change_goes_at_once_and_a_storm_is_gathered() {
        let every = |apart: u64, until: u64| (0..until / apart).map(move |step| (step * apart, true));
        assert_eq!(departures([(0, true)]), [50]);
        assert_eq!(departures([(0, true), (20, true), (49, true)]), [50], "one node is several writes");
        assert_eq!(departures([(0, true), (100, true), (900, true)]), [50, 1_050]);
        assert_eq!(departures([(0, true), (1_051, true)]), [50, 1_101], "after a quiet second: at once");
        assert_eq!(
            departures(every(100, 60_000)),
            [50, 1_050, 2_100, 4_200, 8_400, 16_800, 26_800, 36_800, 46_800, 56_800, 60_900]
        );
    }

    /// The change of a node being initialised waits for the rest, but not forever.
    #[test]
    fn what_is_about_to_change_again_waits_for_it() {
        assert_eq!(departures([(0, false)]), [1_000]);
        assert_eq!(departures([(0, false), (200, true)]), [250]);
        assert_eq!(departures([(0, false), (990, true)]), [1_000]);
    }
}
