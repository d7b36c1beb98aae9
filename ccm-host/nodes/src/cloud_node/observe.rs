//! Decides whether to ask the provider about a node, and asks.
//!
//! In: the node. Out: an answer to decide on, or the outcome without one.
//!
//! A new node is always asked about. An initialised one is asked about when it is due: its sweep has come, the
//! provider reported a change, or the kubelet changed something that the answer depends on. [`super::triggers`] marks
//! nodes as due, and how fresh the answer must be; a question about the present that fails is asked again.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{Controller, is_new, problem};
use ccm_cloud::{Freshness, InstanceAnswer, InstanceState, InstanceView};
use ccm_kube::{node::Node, queue::Outcome};
use ccm_reconcile::node_instance::{self, Found};

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
            Found::Answer { by, mut answer } => {
                if let Some(instance) = answer.instance.as_mut()
                    && !self.parts.settings.nodes.planned_maintenance_condition
                {
                    instance.maintenance = None;
                }
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
        self.memory.lock().due(&node.name, freshness);
        Outcome::RetryAfter(INTRODUCTION)
    }

    /// Handles a node whose provider ID no provider claims; one that is claimed later is requeued then.
    fn nobodys(&self, node: &Node) -> Outcome {
        let Some(id) = node.provider_id.as_deref().filter(|_| is_new(node)) else { return Outcome::Done };
        let age = node.created.map_or(LOST, |created| {
            Duration::try_from(ccm_base::clock::now().duration_since(created)).unwrap_or_default()
        });
        if age < LOST {
            return Outcome::RetryAfter(LOST - age);
        }
        self.report(node, &self.new, vec![problem::nobodys(id)])
    }
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
    version: u64,
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
            if ours
                .is_some_and(|ours| version(&node.resource_version).is_some_and(|seen| seen < ours.version))
            {
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
        (answer.state, &answer.instance).hash(&mut hasher);
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
        let written = |version| Untainted { uid: node.uid.clone(), version };
        self.of(&node.name).untainted = version(resource_version).map(written);
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
}
