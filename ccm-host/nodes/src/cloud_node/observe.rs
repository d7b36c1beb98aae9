//! Decides when to ask the provider about a node, and asks.
//!
//! In: the cache's changes, the provider's watch, the clock. Out: keys in the queue, and which of them must ask the
//! provider; for a key of the queue an answer to decide on, or the outcome without one. All nodes of a provider that are
//! due together are asked about together, so that they share few calls.
//!
//! A new node is always asked about. An initialised one is asked about when it is due: its sweep has come, the
//! provider reported a change, or the kubelet changed something that the answer depends on. What makes a node due says how
//! fresh the answer must be; a question about the present that fails is asked again.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::broadcast::error::RecvError,
    time::{Instant, sleep_until},
};

use super::{Controller, is_new, labels, problem};
use ccm_base::{clock, metric::gauge};
use ccm_cloud::{Freshness, InstanceAnswer, InstanceState, InstanceView, NodeOwner, Provider};
use ccm_kube::{
    cache::Change,
    node::{Node, PROVIDED_NODE_IP},
    patch::NodeChange,
    queue::Outcome,
};
use ccm_reconcile::{
    Retry, Sweeps,
    node_instance::{self, Found},
};

/// How long to wait for a provider that has not introduced itself; its introduction requeues the node earlier.
const INTRODUCTION: Duration = Duration::from_secs(10);

/// The age at which a new node without a provider is reported: by then a provider of another host has initialised its own.
const LOST: Duration = Duration::from_secs(60);

impl Controller {
    /// Asks the provider that owns the node, or those that might. `Err` is the outcome without an answer.
    pub(super) async fn observe(
        &self,
        node: &Arc<Node>,
        freshness: Freshness,
    ) -> Result<Box<InstanceAnswer>, Outcome> {
        let (providers, nodes) = (&self.parts.providers, &self.parts.nodes);
        let asked = node_instance::ask(providers, nodes, node, InstanceView::Metadata, freshness);
        match asked.await {
            Found::Answer { by, answer } => {
                let is_news = self.memory.lock().answered(&node.name, &answer, Instant::now());
                // What a periodic sweep finds was missed by the watch.
                if is_news && freshness > Freshness::NOW {
                    let watched = by.iter().filter(|one| one.info().is_some_and(|info| info.watch_instances));
                    watched.for_each(|provider| self.parts.cloud_metrics.watch_missed(provider.name()));
                }
                Ok(answer)
            }
            Found::Failed { error } => {
                Err(self.not_yet(node, problem::of_error(node, &error), Some(freshness)))
            }
            Found::Contested { by } => Err(self.not_yet(node, problem::contested(node, &by), None)),
            Found::Undecided => Err(self.undecided(node, freshness)),
            Found::Nobody => Err(self.nobodys(node)),
        }
    }

    /// Handles a node whose provider is not certain.
    fn undecided(&self, node: &Node, freshness: Freshness) -> Outcome {
        if let Some(contest) = self.parts.providers.contest(node) {
            return self.not_yet(node, problem::contested_id(node, &contest), Some(freshness));
        }
        if !is_new(node) {
            self.memory.lock().due(&node.name, freshness);
            return Outcome::RetryAfter(INTRODUCTION);
        }
        let report = problem::undecided(Retry::After(INTRODUCTION), age(node) >= LOST);
        self.not_yet(node, report, Some(freshness))
    }

    /// Handles a node whose provider ID no provider claims; one that is claimed later is requeued then.
    fn nobodys(&self, node: &Node) -> Outcome {
        let Some(id) = node.provider_id.as_deref().filter(|_| is_new(node)) else {
            return self.report(node, self.lane(node), vec![]);
        };
        match age(node) {
            age if age < LOST => Outcome::RetryAfter(LOST - age),
            _ => self.report(node, &self.new, vec![problem::nobodys(id)]),
        }
    }
}

/// One without a date is old.
fn age(node: &Node) -> Duration {
    node.created.map_or(LOST, |created| clock::between(created, clock::now()))
}

/// What is remembered of each node between two runs. Pure bookkeeping: time is an argument.
#[derive(Debug, Default)]
pub(super) struct Memory(HashMap<String, Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    /// It must be asked about, at least as freshly as this.
    due: Option<Freshness>,
    answered: Option<Answered>,
    untainted: Option<Untainted>,
}

/// The last answer about a node.
#[derive(Debug)]
struct Answered {
    at: Instant,
    /// Hash of the answer, to tell whether the next one differs.
    said: u64,
    /// One of our providers has the instance; an answer of unknown state does not revoke that.
    is_ours: bool,
}

/// A write of ours that the cache may not show yet.
#[derive(Debug)]
struct Untainted {
    uid: String,
    /// From the version that we changed to the one that this made. What is older still is of an etcd that was restored.
    before: Range<u64>,
}

impl Memory {
    /// How freshly to ask the provider about the node now: `Some(None)` means not at all, its labels alone are compared.
    /// `None` means to do nothing: either the cache does not show our own write yet, and the watch will requeue the node
    /// when it does; or no answer has confirmed yet that the node is ours, and the one that does also brings its labels.
    pub(super) fn question(&mut self, node: &Node) -> Option<Option<Freshness>> {
        let is_new = is_new(node);
        let known = match self.0.get_mut(&node.name) {
            Some(known) => known,
            None => return is_new.then_some(Some(Freshness::ReadThrough)),
        };
        if is_new {
            let ours = known.untainted.as_ref().filter(|ours| ours.uid == node.uid);
            let seen = version(&node.resource_version);
            if ours.zip(seen).is_some_and(|(ours, seen)| ours.before.contains(&seen)) {
                return None;
            }
        }
        known.untainted = None;
        match known.due.take() {
            _ if is_new => Some(Some(Freshness::ReadThrough)),
            Some(freshness) => Some(Some(freshness)),
            None => known.answered.as_ref().is_some_and(|last| last.is_ours).then_some(None),
        }
    }

    /// Marks the node as due at its next run. Of several marks the freshest counts.
    pub(super) fn due(&mut self, name: &str, freshness: Freshness) {
        let due = &mut self.of(name).due;
        *due = Some(due.map_or(freshness, |before| before.min(freshness)));
    }

    /// Whether anything is remembered of the node.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether the node is marked as due.
    pub(super) fn is_due(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|known| known.due.is_some())
    }

    /// Records an answer. Returns whether it differs from the one before.
    pub(super) fn answered(&mut self, name: &str, answer: &InstanceAnswer, now: Instant) -> bool {
        let mut hasher = DefaultHasher::new();
        // In a fixed order: some providers read a map.
        let mut instance = answer.instance.clone();
        instance
            .iter_mut()
            .for_each(|one| one.addresses.sort_by_cached_key(|address| format!("{address:?}")));
        (answer.state, instance).hash(&mut hasher);
        let said = hasher.finish();
        let known = self.of(name);
        let is_ours = match answer.state {
            InstanceState::NotOwned | InstanceState::Absent => false,
            InstanceState::Unspecified => known.answered.as_ref().is_some_and(|last| last.is_ours),
            _ => true,
        };
        let before = known.answered.replace(Answered { at: now, said, is_ours });
        before.is_some_and(|before| before.said != said)
    }

    /// When the provider last answered about the node.
    pub(super) fn answered_at(&self, name: &str) -> Option<Instant> {
        self.0.get(name)?.answered.as_ref().map(|last| last.at)
    }

    /// Records that we removed the taint, which gave the node this version.
    pub(super) fn untainted(&mut self, node: &Node, resource_version: &str) {
        let before = version(&node.resource_version).zip(version(resource_version));
        self.of(&node.name).untainted =
            before.map(|(from, to)| Untainted { uid: node.uid.clone(), before: from..to });
    }

    /// Forgets a node that is gone.
    pub(super) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    fn of(&mut self, name: &str) -> &mut Remembered {
        self.0.entry(name.to_owned()).or_default()
    }
}

/// Resource versions of one kind of object are increasing numbers.
fn version(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// Contested nodes that get an Event: there may be thousands, with one cause.
const MOST_TOLD: usize = 10;

/// The reaction that a change of a node requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Concern {
    /// Nothing here.
    None,
    Look,
    /// A reconcile that asks the provider even though the node is initialised.
    Ask,
}

/// NW-10: most changes of a node do not concern us.
pub(super) fn concern(change: &Change<Node>) -> Concern {
    match change {
        Change::Deleted(_) => Concern::None,
        Change::Added(node) => look_if(is_new(node) || names_disagree(node)),
        Change::Updated { old, new } if is_new(new) => {
            let same = old.taints == new.taints
                && old.labels == new.labels
                && old.annotations == new.annotations
                && old.provider_id == new.provider_id
                && old.addresses == new.addresses
                && old.system_uuid == new.system_uuid;
            look_if(!same)
        }
        // Usually our own write, for which the provider was just asked.
        Change::Updated { old, new } if is_new(old) => look_if(names_disagree(new)),
        Change::Updated { old, new } => {
            let told = |node: &Node| node.annotations.get(PROVIDED_NODE_IP).map(str::to_owned);
            if told(old) != told(new) || old.provider_id != new.provider_id {
                return Concern::Ask;
            }
            look_if(old.labels != new.labels && names_disagree(new))
        }
    }
}

fn shows_our_write(change: &Change<Node>) -> bool {
    matches!(change, Change::Updated { old, new } if is_new(old) && !is_new(new))
}

fn look_if(wanted: bool) -> Concern {
    if wanted { Concern::Look } else { Concern::None }
}

fn names_disagree(node: &Node) -> bool {
    let mut change = NodeChange::default();
    labels::mirror(node, &mut change);
    change != NodeChange::default()
}

impl Controller {
    /// Handles a change of a node. All that are known already come first, as added.
    pub(super) fn node_changed(&self, change: &Change<Node>) {
        let node = change.object();
        let name = &node.name;
        if let Change::Updated { old, .. } = change
            && self.parts.is_ours(old)
            && !self.parts.is_ours(node)
        {
            self.forget(name);
            return;
        }
        match concern(change) {
            // Its labels alone are compared; a question that waits for its turn, or for its retry, stays behind.
            Concern::Look if !is_new(node) => _ = self.known.queue.add_unless_delayed(name.clone()),
            Concern::Look => {
                let wait = self.paces.wait(name, Instant::now());
                self.new.queue.add_after(name.clone(), wait);
            }
            Concern::Ask => {
                let freshness = Freshness::AtMost(self.parts.settings.nodes.node_status_update_frequency);
                let wait = self.paces.wait(name, Instant::now());
                self.ask_after(node, freshness, wait);
            }
            Concern::None if matches!(change, Change::Deleted(_)) => self.forget(name),
            // What the provider reported meanwhile could not be asked about before.
            Concern::None if shows_our_write(change) && self.memory.lock().is_due(name) => {
                self.known.queue.add(name.clone());
            }
            Concern::None => {}
        }
    }

    /// Follows one provider's reports, and sweeps over its nodes periodically.
    pub(super) async fn follow_provider(&self, provider: &Arc<dyn Provider>) {
        let mut changes = provider.instance_changes();
        let mut sweeps = Sweeps::of(provider.as_ref());
        let mut is_told = true;
        let mut next = Instant::now();
        loop {
            tokio::select! {
                () = sleep_until(next) => {
                    next = Instant::now() + self.period(provider);
                    self.sweep(provider);
                }
                () = sweeps.due() => {
                    sweeps.made(self.period(provider));
                    self.sweep_at_once(provider);
                }
                change = changes.recv(), if is_told => match change {
                    Ok(key) => self.instance_changed(provider.as_ref(), &key),
                    Err(RecvError::Lagged(_)) => sweeps.wish(),
                    // No more reports will come; the periodic sweeps continue.
                    Err(RecvError::Closed) => is_told = false,
                },
            }
        }
    }

    pub(super) fn period(&self, provider: &Arc<dyn Provider>) -> Duration {
        let own = self.parts.settings.nodes.node_status_update_frequency;
        provider.info().and_then(|info| info.instance_sweep).filter(|pace| !pace.is_zero()).unwrap_or(own)
    }

    /// The periodic reconcile of every initialised node. A node asked about recently waits for the next sweep.
    fn sweep(&self, provider: &Arc<dyn Provider>) {
        let period = self.period(provider);
        let now = Instant::now();
        for node in self.parts.nodes_of(provider).into_iter().filter(|node| !is_new(node)) {
            let answered = self.memory.lock().answered_at(&node.name);
            if answered.is_none_or(|at| now.saturating_duration_since(at) >= period / 2) {
                self.ask_again(&node, Freshness::AtMost(period));
            }
        }
        self.count_ownerless();
    }

    /// Counts the nodes that no provider owns, or that several claim. Of the latter, a few get an Event.
    fn count_ownerless(&self) {
        let (providers, mut unmatched, mut contested) = (&self.parts.providers, 0, 0);
        for node in self.parts.nodes.list().iter().filter(|node| self.parts.is_ours(node)) {
            match providers.for_node(node) {
                NodeOwner::Nobody => unmatched += 1,
                NodeOwner::Undecided => {
                    let Some(contest) = providers.contest(node) else { continue };
                    contested += 1;
                    // A new one says so while it waits.
                    if contested <= MOST_TOLD && !is_new(node) {
                        self.report(node, &self.known, vec![problem::contested_id(node, &contest)]);
                    }
                }
                NodeOwner::Provider(_) | NodeOwner::Candidates(_) => {}
            }
        }
        self.metrics.unmatched.set(gauge(unmatched));
        self.metrics.contested.set(gauge(contested));
    }

    /// Asks about everything now, since changes may have been missed; new nodes do not wait for their retry. Also about
    /// known nodes of others that were never asked about: that a provider introduced itself may have decided whose they are.
    fn sweep_at_once(&self, provider: &Arc<dyn Provider>) {
        tracing::debug!(provider = provider.name(), "changes may have been missed, checking all nodes");
        for node in self.parts.nodes.list().iter().filter(|node| self.parts.is_ours(node)) {
            let is_unknown = || !is_new(node) && !self.memory.lock().knows(&node.name);
            let owner = self.parts.providers.for_node(node);
            let is_known = matches!(owner, NodeOwner::Provider(_) | NodeOwner::Candidates(_));
            if is_known && (owner.may_be(provider.as_ref()) || is_unknown()) {
                self.ask_again(node, Freshness::NOW);
            }
        }
    }

    /// Handles a provider's report about an instance, named by its provider ID or its node. What is another provider's has
    /// nothing to do with it. About what may be either's the other one is asked as well: no more often than because of the
    /// node's own changes.
    fn instance_changed(&self, provider: &dyn Provider, key: &str) {
        let nodes = &self.parts.nodes;
        for node in nodes.by_index(key).into_iter().chain(nodes.get(key)) {
            let owner = self.parts.providers.for_node(&node);
            if !owner.may_be(provider) {
                continue;
            }
            let wait = match owner {
                NodeOwner::Candidates(_) => self.paces.wait(&node.name, Instant::now()),
                NodeOwner::Provider(_) | NodeOwner::Undecided | NodeOwner::Nobody => Duration::ZERO,
            };
            self.ask_after(&node, Freshness::NOW, wait);
        }
    }

    pub(super) fn ask_again(&self, node: &Node, freshness: Freshness) {
        self.ask_after(node, freshness, Duration::ZERO);
    }

    fn ask_after(&self, node: &Node, freshness: Freshness, wait: Duration) {
        self.memory.lock().due(&node.name, freshness);
        self.lane(node).queue.add_after(node.name.clone(), wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccm_cloud::fake::{instance, machine};
    use ccm_kube::fixtures::node;

    const MINUTE: Duration = Duration::from_secs(60);
    const ASK: Option<Option<Freshness>> = Some(Some(Freshness::ReadThrough));
    const LABELS: Option<Option<Freshness>> = Some(None);

    #[test]
    fn a_node_is_asked_about_when_it_is_new_or_due() {
        let mut memory = Memory::default();
        assert_eq!(memory.question(&node("n").tainted_uninitialized()), ASK);
        assert_eq!(memory.question(&node("n")), None, "NODE-14, perhaps it is nobody's");
        let mut said = |state| memory.answered("n", &machine(state, None), Instant::now());
        said(InstanceState::Running);
        said(InstanceState::Unspecified);
        assert_eq!(memory.question(&node("n")), LABELS);
        memory.due("n", Freshness::AtMost(MINUTE));
        memory.due("n", Freshness::NOW);
        memory.due("n", Freshness::AtMost(MINUTE));
        assert_eq!(memory.question(&node("n")), Some(Some(Freshness::NOW)), "the freshest wish counts");
        assert_eq!(memory.question(&node("n")), LABELS, "once");
        memory.answered("n", &machine(InstanceState::NotOwned, None), Instant::now());
        assert_eq!(memory.question(&node("n")), None, "it is left alone");
    }

    #[test]
    fn our_own_write_is_waited_for() {
        let tainted = |version: &str| node("n").tainted_uninitialized().version(version);
        let mut memory = Memory::default();
        memory.untainted(&tainted("5"), "9");
        assert_eq!(memory.question(&tainted("5")), None);
        memory.due("n", Freshness::NOW);
        assert_eq!(memory.question(&tainted("8")), None, "our write of the addresses");
        assert!(memory.is_due("n"), "for later");
        assert_eq!(memory.question(&tainted("8").uid("other")), ASK, "a new node");
        memory.untainted(&tainted("5"), "9");
        assert_eq!(memory.question(&tainted("10")), ASK, "tainted again by somebody");
        memory.untainted(&tainted("5"), "9");
        assert_eq!(
            memory.question(&tainted("4")),
            ASK,
            "tainted still in the backup that etcd was restored from"
        );
        memory.untainted(&tainted("5"), "odd");
        assert_eq!(memory.question(&tainted("5")), ASK);
    }

    #[test]
    fn knows_whether_an_answer_is_news_and_how_old_it_is() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        let mut answered = |state, id: &str| memory.answered("n", &machine(state, Some(instance(id))), now);
        assert!(!answered(InstanceState::Running, "fake://1"), "nothing was known before");
        assert!(!answered(InstanceState::Running, "fake://1"));
        assert!(answered(InstanceState::Stopped, "fake://1"));
        assert!(answered(InstanceState::Stopped, "fake://2"));
        assert_eq!(memory.answered_at("n"), Some(now));
        memory.forget("n");
        assert_eq!(memory.answered_at("n"), None);
    }

    #[test]
    fn only_what_concerns_us_wakes_us() {
        let old = || node("n").with_provider_id("fake://1").with_label("x", "1").ready();
        let new = || node("n").tainted_uninitialized();
        let zone = |node: Node| node.with_label("topology.kubernetes.io/zone", "a");
        let updated = |old: Node, new: Node| Change::Updated { old: Arc::new(old), new: Arc::new(new) };
        let rows = [
            ("a new node", Change::Added(Arc::new(new())), Concern::Look),
            ("a node that is done, as after a restart", Change::Added(Arc::new(old())), Concern::None),
            ("the names of its zone disagree", Change::Added(Arc::new(zone(old()))), Concern::Look),
            ("gone", Change::Deleted(Arc::new(new())), Concern::None),
            ("NW-10 readiness of a new node", updated(new(), new().ready()), Concern::None),
            (
                "NODE-33 the kubelet writes an address",
                updated(new(), new().with_address("Hostname", "a")),
                Concern::Look,
            ),
            ("NODE-33 a label of a new node", updated(new(), new().with_label("x", "1")), Concern::Look),
            ("tainted by somebody", updated(old(), old().tainted_uninitialized()), Concern::Look),
            ("our own write", updated(new(), old()), Concern::None),
            ("untainted by somebody", updated(zone(new()), zone(new().with_provider_id("x"))), Concern::Look),
            ("NW-10 readiness", updated(old(), old().not_ready()), Concern::None),
            (
                "NW-10 addresses, our own write",
                updated(old(), old().with_address("InternalIP", "1.1.1.1")),
                Concern::None,
            ),
            ("a label that is not ours", updated(old(), old().with_label("x", "2")), Concern::None),
            ("NW-12 a zone by one name", updated(old(), zone(old())), Concern::Look),
            (
                "the kubelet got another IP",
                updated(old(), old().with_annotation(PROVIDED_NODE_IP, "1.1.1.1")),
                Concern::Ask,
            ),
            ("another annotation", updated(old(), old().with_annotation("x", "y")), Concern::None),
            ("a provider ID from somebody", updated(node("n"), old()), Concern::Ask),
        ];
        for (id, change, want) in rows {
            assert_eq!(concern(&change), want, "{id}");
        }
    }
}
