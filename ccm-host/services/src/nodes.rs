//! The nodes behind all balancers: computed once for all Services, and passed on to the balancers that a change concerns:
//! the first of a burst at once, the others less often the longer it lasts.
//!
//! In: the node cache and its changes. Out: the set of eligible nodes as each provider wants it; the keys, in the queue,
//! of Services whose balancers do not have the current nodes. The updates themselves are batched by [`ccm_cloud`],
//! which gathers requests made at about the same time.
//!
//! Which nodes are eligible is upstream's rule. Readiness, cordon and the uninitialized taint do not matter: health checks
//! remove nodes that do not serve. A node being drained stays until something else happens, so that its connections
//! survive, unless `--exclude-draining-nodes` says otherwise.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ccm_state::LeftOut;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{Controller, RunKey, observe::standing};
use ccm_cloud::{BackendSet, Provider, Providers};
use ccm_kube::{
    cache::{Cache, Change},
    node::Node,
};
use ccm_reconcile::{pace::NodePaces, taint};

/// The sets of nodes behind balancers. Only a departure ([`Controller::depart`]) makes new ones, so that all balancers of
/// a provider get the same set in one wave, however fast nodes change.
#[derive(Debug)]
pub(super) struct Backends {
    nodes: Cache<Node>,
    providers: Providers,
    /// Draining nodes leave at once.
    drain: bool,
    /// Changes that no set has yet.
    changed: AtomicBool,
    /// By provider, with what all providers said of themselves when it was made.
    sets: Mutex<HashMap<String, (String, Arc<BackendSet>)>>,
}

impl Backends {
    pub(super) fn new(nodes: Cache<Node>, providers: Providers, drain: bool) -> Self {
        Self { nodes, providers, drain, changed: AtomicBool::new(false), sets: Mutex::default() }
    }

    /// The set that the balancers of this provider are to have.
    pub(super) fn of(&self, provider: &dyn Provider) -> Arc<BackendSet> {
        let said = self.said();
        // Held to the end: no older set replaces a newer one.
        let mut sets = self.sets.lock();
        // Without any node, a balancer is better made of the newest ones.
        let is_poor = |set: &BackendSet| set.nodes.is_empty() && self.is_outdated();
        if let Some((then, set)) = sets.get(provider.name())
            && *then == said
            && !is_poor(set)
        {
            return Arc::clone(set);
        }
        let set = provider.backend_set(self.eligible(provider));
        sets.insert(provider.name().to_owned(), (said, Arc::clone(&set)));
        set
    }

    /// Makes new sets of the nodes as they are now. Those of providers that are unknown now are made once they are back.
    fn publish(&self) {
        let mut sets = self.sets.lock();
        self.changed.store(false, Ordering::Release);
        sets.clear();
        for provider in self.providers.all().iter().filter(|provider| provider.info().is_some()) {
            let set = provider.backend_set(self.eligible(provider.as_ref()));
            sets.insert(provider.name().to_owned(), (self.said(), set));
        }
    }

    /// What a provider wants of a node is fixed within one epoch, and may not be known yet; whose a node is depends on all of
    /// them.
    fn said(&self) -> String {
        let of = |one: &Arc<dyn Provider>| {
            let info = one.info()?;
            Some((info.epoch.clone(), self.nodes.holds(&info.keep_of_nodes)))
        };
        format!("{:?}", self.providers.all().iter().map(of).collect::<Vec<_>>())
    }

    /// Whether nodes changed that are in no set yet.
    pub(super) fn is_outdated(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    fn takes(&self, node: &Node) -> bool {
        bar(node, self.drain).is_none()
    }

    fn eligible(&self, provider: &dyn Provider) -> Vec<Arc<Node>> {
        let mut nodes = self.nodes.list();
        nodes.retain(|node| self.takes(node) && self.providers.may_back(provider, node));
        nodes
    }

    /// The nodes that are not behind the provider's balancers, by reason.
    pub(super) fn left_out(&self, provider: &dyn Provider) -> Vec<LeftOut> {
        let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for node in self.nodes.list() {
            let why = match bar(&node, self.drain) {
                Some(why) => why.to_owned(),
                None if self.providers.may_back(provider, &node) => continue,
                None => format!("not known to be of provider {:?}", provider.name()),
            };
            by_reason.entry(why).or_default().push(node.name.clone());
        }
        let left_out = by_reason.into_iter().map(|(why, mut nodes)| {
            nodes.sort_unstable();
            let count = nodes.len();
            nodes.truncate(NAMES);
            LeftOut { why, count, nodes }
        });
        left_out.collect()
    }
}

/// Maximum names of nodes for one reason.
const NAMES: usize = 20;

/// Excludes a node, unless its value is a boolean false.
pub(super) const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Whether its pods are about to go.
fn is_draining(node: &Node) -> bool {
    node.unschedulable || node.has_taint(taint::AUTOSCALER) || node.has_taint(taint::KARPENTER)
}

/// What keeps balancers from sending traffic to this node; `drain`: draining ones get none.
fn bar(node: &Node, drain: bool) -> Option<&'static str> {
    match node {
        node if node.is_deleting() => Some("being deleted"),
        node if !is_included(node) => {
            Some("excluded by the label node.kubernetes.io/exclude-from-external-load-balancers")
        }
        node if node.has_taint(taint::AUTOSCALER) => Some("about to be removed by the cluster autoscaler"),
        node if drain && is_draining(node) => Some("draining"),
        _ => None,
    }
}

/// Whether a change of a node needs a check of all balancers at once. Taints and deletion do not.
fn is_trigger(old: &Node, new: &Node) -> bool {
    is_included(old) != is_included(new) || old.provider_id != new.provider_id
}

fn is_included(node: &Node) -> bool {
    node.labels.get(EXCLUDE_LABEL).is_none_or(is_false)
}

/// The values that Go parses as false.
fn is_false(value: &str) -> bool {
    matches!(value, "0" | "f" | "F" | "false" | "False" | "FALSE")
}

/// Changes of nodes that are still to be passed on.
#[derive(Debug, Default)]
pub(super) struct NodeChanges {
    gathered: Mutex<Option<Gathered>>,
    more: Notify,
    /// How often a node's changes may have balancers updated.
    paces: NodePaces,
}

impl NodeChanges {
    fn add(&self, change: &Change<Node>, is_urgent: bool) {
        let now = Instant::now();
        // A change that has to wait counts as if it came then.
        let at = now + self.paces.of_change(change, now);
        let mut gathered = self.gathered.lock();
        let gathered = gathered.get_or_insert(Gathered { first: at, last: now, urgent: None });
        gathered.first = gathered.first.min(at);
        gathered.last = now;
        if is_urgent {
            gathered.urgent = Some(gathered.urgent.map_or(at, |urgent| urgent.min(at)));
        }
        self.more.notify_one();
    }

    /// Waits until it is time to pass changes on; returns when the first of them came.
    async fn next(&self, pace: &mut FanOutPace) -> Instant {
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
                let differs = self.backends.takes(new) && self.differs_for_a_provider(old, new);
                let came_up = is_new(old) && !is_new(new);
                let drains = self.backends.drain && is_draining(old) != is_draining(new);
                let is_in_set = differs || self.backends.takes(old) != self.backends.takes(new);
                (is_in_set, is_trigger(old, new) || differs || came_up || drains)
            }
        };
        if is_in_set {
            self.backends.changed.store(true, Ordering::Release);
        }
        if is_reason {
            // A node still to be initialised will change again at once: wait, and pass it on complete.
            let is_urgent = matches!(change, Change::Deleted(_)) || !is_new(change.object());
            self.node_changes.add(change, is_urgent);
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
            && self.shell.parts.providers.all().iter().any(|provider| {
                let digest = |node| provider.backend_set(vec![Arc::clone(node)]).digest.clone();
                digest(old) != digest(new)
            })
    }

    /// Forwards changes while polled.
    pub(super) async fn fan_out_for_ever(&self) {
        let mut pace = FanOutPace::default();
        loop {
            let since = self.node_changes.next(&mut pace).await;
            self.depart(since).await;
        }
    }

    /// Changes that do not justify an update by themselves go out with a sweep.
    pub(super) async fn depart_if_outdated(&self) {
        if self.backends.is_outdated() {
            self.depart(Instant::now()).await;
        }
    }

    /// Makes new sets, and queues the Services whose balancers lack them.
    async fn depart(&self, since: Instant) {
        self.sets.forget(self).await;
        self.backends.publish();
        let sets: HashMap<_, _> = self
            .shell
            .parts
            .providers
            .all()
            .iter()
            .filter(|provider| !standing(provider.as_ref()).is_away())
            .map(|provider| (provider.name(), self.backends.of(provider.as_ref())))
            .collect();
        let mut sync = None;
        let mut outdated = Vec::new();
        self.rows.for_each(|row| {
            let lacks = |set: &Arc<BackendSet>| {
                row.busy || (row.applied().is_some() && !row.has_backends(&set.digest))
            };
            if sets.get(&*row.at.provider).is_some_and(lacks) {
                let sync = sync.get_or_insert_with(|| self.metrics.node_sync(since));
                row.node_sync.get_or_insert_with(|| Arc::clone(sync));
                outdated.push(row.key.clone());
            }
        });
        tracing::debug!(services = outdated.len(), "nodes have changed");
        for key in outdated {
            self.shell.queue.add(RunKey::Service(key));
        }
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
/// Longest wait of any change, in a storm; [`NodePaces`] says how long a node that never rests waits by itself.
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
struct FanOutPace {
    /// The current burst: its first change, and when changes were last passed on.
    burst: Option<(Instant, Instant)>,
}

impl FanOutPace {
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
    use ccm_kube::fixtures::node;

    fn ready() -> Node {
        node("n").ready().with_provider_id("cloud://n")
    }

    fn excluded(node: Node) -> Node {
        node.with_label(EXCLUDE_LABEL, "")
    }

    fn leaving(node: Node) -> Node {
        node.with_taint(taint::AUTOSCALER, "1700000000", "NoSchedule")
    }

    #[test]
    fn a_node_is_eligible_unless_deleted_excluded_or_leaving() {
        let labelled = |value: &str| ready().with_label(EXCLUDE_LABEL, value);
        let mut rows = vec![
            // PRED-1 and PRED-4 differ from upstream's table, which tests a list that production does not use.
            ("PRED-1", node("n"), true),
            ("PRED-2", ready(), true),
            ("PRED-3", node("n").ready(), true),
            ("PRED-4", ready().not_ready(), true),
            ("PRED-5", ready(), true),
            ("PRED-6", labelled(""), false),
            ("PRED-7", labelled("false"), true),
            ("PRED-8", labelled("true"), false),
            ("PRED-9", labelled("foo"), false),
            ("PRED-10", leaving(ready()), false),
            ("LBN-16", ready().deleting(), false),
            ("LBN-17", ready().with_taint("other", "", "NoSchedule"), true),
            ("1.12", ready().tainted_uninitialized().unschedulable(), true),
        ];
        rows.extend(["0", "f", "F", "FALSE", "False"].map(|value| ("PRED-11", labelled(value), true)));
        rows.extend(
            ["1", "t", "T", "TRUE", "True", "yes", "no", " false"]
                .map(|value| ("PRED-12", labelled(value), false)),
        );
        for (id, node, want) in rows {
            assert_eq!(bar(&node, false).is_none(), want, "{id}: {node:?}");
        }
    }

    /// LIST-1..3: a list filtered by a predicate keeps what passes, and may be empty.
    #[test]
    fn a_list_is_filtered() {
        let nodes: Vec<Node> = (0..5)
            .map(|number| {
                let node = node(&number.to_string());
                if number % 2 == 0 { excluded(node) } else { node }
            })
            .collect();
        let names = |keep: fn(&Node) -> bool| -> Vec<&str> {
            nodes.iter().filter(|node| keep(node)).map(|node| node.name.as_str()).collect()
        };
        assert_eq!(names(|node| bar(node, false).is_none()), ["1", "3"], "LIST-1");
        assert_eq!(names(|node| bar(node, false).is_some()), ["0", "2", "4"], "LIST-2");
        assert!(names(|node| node.is_deleting()).is_empty(), "LIST-3");
    }

    #[test]
    fn a_change_triggers_if_exclusion_or_provider_id_differ() {
        let a = || node("n").ready().with_provider_id("a");
        let b = || node("n").ready().with_provider_id("b");
        let bare = || node("n").ready();
        let unready = || a().with_condition("Ready", "False", "x");
        let unknown = || node("n").with_provider_id("a");
        let taint = |node: Node| node.with_taint("other", "", "NoSchedule");
        let label = |node: Node| node.with_label("other", "x");
        let pressure = |node: Node, status| node.with_condition("DiskPressure", status, "x");
        let rows = [
            ("TRIG-1", a(), a(), false),
            ("TRIG-2", a(), excluded(a()), true),
            ("TRIG-3", excluded(a()), a(), true),
            ("TRIG-4", excluded(a()), excluded(a()), false),
            ("TRIG-5", a(), taint(a()), false),
            ("TRIG-6", taint(a()), a(), false),
            ("TRIG-7", a(), label(a()), false),
            ("TRIG-8", label(a()), a(), false),
            ("TRIG-9", unready(), unready(), false),
            ("TRIG-10", unready(), unknown(), false),
            ("TRIG-11", unknown(), unready(), false),
            ("TRIG-12", unknown(), unknown(), false),
            ("TRIG-13", pressure(unready(), "False"), pressure(unready(), "True"), false),
            ("TRIG-14", pressure(unready(), "True"), pressure(unready(), "False"), false),
            ("TRIG-15", pressure(a(), "False"), pressure(a(), "True"), false),
            ("TRIG-16", pressure(a(), "True"), pressure(a(), "False"), false),
            ("TRIG-17", a(), a().deleting(), false),
            ("TRIG-18", bare(), a(), true),
            ("TRIG-19", a(), bare(), true),
            ("TRIG-20", a(), b(), true),
            ("TRIG-21", leaving(a()), excluded(leaving(a())), true),
            ("TRIG-22", excluded(leaving(a())), leaving(a()), true),
            ("TRIG-23", leaving(bare()), leaving(a()), true),
            ("TRIG-24", leaving(a()), leaving(bare()), true),
            ("TRIG-25", leaving(a()), leaving(b()), true),
            ("TRIG-26", leaving(unready()), leaving(a()), false),
            ("TRIG-27", leaving(a()), leaving(unready()), false),
            ("TRIG-28", excluded(a()), leaving(excluded(a())), false),
            ("TRIG-29", leaving(excluded(a())), excluded(a()), false),
            ("TRIG-30", excluded(unready()), excluded(a()), false),
            ("TRIG-31", excluded(a()), excluded(unready()), false),
            ("TRIG-32", excluded(bare()), excluded(a()), true),
            ("TRIG-33", excluded(a()), excluded(bare()), true),
            ("TRIG-34", excluded(a()), excluded(b()), true),
            ("TRIG-35", unready(), leaving(unready()), false),
            ("TRIG-36", leaving(unready()), unready(), false),
            ("TRIG-37", unready(), excluded(unready()), true),
            ("TRIG-38", excluded(unready()), unready(), true),
            ("TRIG-39", bare().not_ready(), a().not_ready(), true),
            ("TRIG-40", a().not_ready(), bare().not_ready(), true),
            ("TRIG-41", a().not_ready(), b().not_ready(), true),
            ("TRIG-42", bare(), excluded(bare()), true),
            ("TRIG-43", excluded(bare()), bare(), true),
            ("TRIG-44", bare(), bare(), false),
            ("TRIG-45", bare(), bare().not_ready(), false),
            ("TRIG-46", leaving(bare()), bare(), false),
            ("TRIG-47", bare(), leaving(bare()), false),
            ("TRIG-48", a(), leaving(a()), false),
            ("TRIG-48", leaving(a()), a(), false),
        ];
        for (id, old, new, want) in rows {
            assert_eq!(is_trigger(&old, &new), want, "{id}");
        }
    }

    /// When changes that come at these milliseconds are passed on.
    fn departures(changes: impl IntoIterator<Item = (u64, bool)>) -> Vec<u64> {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut pace = FanOutPace::default();
        let mut gathered: Option<Gathered> = None;
        let mut departures = Vec::new();
        let mut depart = |gathered: &mut Option<Gathered>, pace: &mut FanOutPace, until: Option<Instant>| {
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
