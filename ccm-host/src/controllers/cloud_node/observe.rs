//! Decides whether to ask the provider about a node, and asks.
//!
//! In: the node. Out: an answer to decide on, or the outcome without one.
//!
//! A new node is always asked about. An initialised one is asked about when it is due: its sweep has come, the
//! provider reported a change, or the kubelet changed something that the answer depends on. [`super::triggers`] marks
//! nodes as due.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{Controller, decide::Obstacle, is_new};
use crate::{
    cloud::{Freshness, InstanceAnswer, InstanceState, InstanceView},
    controllers::node_instance::{self, Found},
    kube::{node::Node, queue::Outcome},
    reconcile::passes_by_itself,
};

/// How long to wait for a provider that has not introduced itself; its introduction requeues the node earlier.
const INTRODUCTION: Duration = Duration::from_secs(10);

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
                let is_news = self.attention.lock().answered(&node.name, &answer, Instant::now());
                // Watch reports are read through; a change found by a sweep was missed by the watch.
                if is_news && matches!(freshness, Freshness::AtMost(_)) {
                    let watched = by.iter().filter(|one| one.info().is_some_and(|info| info.watch_instances));
                    watched.for_each(|provider| self.parts.cloud_metrics.watch_missed(provider.name()));
                }
                Ok(answer)
            }
            Found::Failed { error } => {
                let expected = passes_by_itself(&error, self.queue.failing_for(&node.name));
                Err(self.not_yet(node, &Obstacle { expected, ..Obstacle::of_error(&error) }))
            }
            Found::Contested { by } => Err(self.not_yet(node, &Obstacle::contested(&by))),
            Found::Undecided if is_new(node) => Err(Outcome::RetryAfter(INTRODUCTION)),
            Found::Undecided | Found::Nobody => Err(Outcome::Done),
        }
    }
}

/// Which nodes to ask the provider about. Pure bookkeeping: time is an argument. Apart from the last answer, only nodes
/// that need attention take memory.
#[derive(Debug, Default)]
pub(super) struct Attention {
    due: HashMap<String, Freshness>,
    answered: HashMap<String, Answered>,
    untainted: HashMap<String, Untainted>,
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

/// How the reconcile of a node begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    /// Ask the provider, with this freshness.
    Ask(Freshness),
    /// Only reconcile its labels.
    Labels,
    /// Do nothing now. Either the cache does not show our own write yet, and the watch will requeue the node when it
    /// does. Or no answer has confirmed yet that the node is ours; the one that does also brings its labels.
    Wait,
}

impl Attention {
    /// How to reconcile the node now. Clears its due mark, unless the cache does not show our own write yet.
    pub(super) fn question(&mut self, node: &Node) -> Question {
        if !is_new(node) {
            self.untainted.remove(&node.name);
            let is_ours = self.answered.get(&node.name).is_some_and(|last| last.is_ours);
            let otherwise = if is_ours { Question::Labels } else { Question::Wait };
            return self.due.remove(&node.name).map_or(otherwise, Question::Ask);
        }
        let ours = self.untainted.get(&node.name).filter(|ours| ours.uid == node.uid);
        if ours.is_some_and(|ours| version(&node.resource_version).is_some_and(|seen| seen < ours.version)) {
            return Question::Wait;
        }
        self.due.remove(&node.name);
        self.untainted.remove(&node.name);
        Question::Ask(Freshness::ReadThrough)
    }

    /// Marks the node as due at its next reconcile. Of several marks the freshest counts.
    pub(super) fn due(&mut self, name: &str, freshness: Freshness) {
        let before = self.due.get(name).copied().unwrap_or(freshness);
        self.due.insert(name.to_owned(), before.min(freshness));
    }

    /// Whether the node is marked as due.
    pub(super) fn is_due(&self, name: &str) -> bool {
        self.due.contains_key(name)
    }

    /// Records an answer. Returns whether it differs from the one before.
    pub(super) fn answered(&mut self, name: &str, answer: &InstanceAnswer, now: Instant) -> bool {
        let mut hasher = DefaultHasher::new();
        (answer.state, &answer.instance).hash(&mut hasher);
        let said = hasher.finish();
        let was_ours = self.answered.get(name).is_some_and(|last| last.is_ours);
        let is_ours = match answer.state {
            InstanceState::NotOwned | InstanceState::Absent => false,
            InstanceState::Unspecified => was_ours,
            _ => true,
        };
        let before = self.answered.insert(name.to_owned(), Answered { at: now, said, is_ours });
        before.is_some_and(|before| before.said != said)
    }

    /// Whether the last answer is younger than `age`.
    pub(super) fn is_answered_within(&self, name: &str, age: Duration, now: Instant) -> bool {
        self.answered.get(name).is_some_and(|last| now.saturating_duration_since(last.at) < age)
    }

    /// When the provider last answered about the node.
    pub(super) fn answered_at(&self, name: &str) -> Option<Instant> {
        self.answered.get(name).map(|last| last.at)
    }

    /// Records that we removed the taint, which gave the node this version.
    pub(super) fn untainted(&mut self, node: &Node, resource_version: &str) {
        if let Some(version) = version(resource_version) {
            self.untainted.insert(node.name.clone(), Untainted { uid: node.uid.clone(), version });
        }
    }

    /// Forgets a node that is gone.
    pub(super) fn forget(&mut self, name: &str) {
        self.due.remove(name);
        self.answered.remove(name);
        self.untainted.remove(name);
    }
}

/// Resource versions of one kind of object are increasing numbers.
fn version(text: &str) -> Option<u64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cloud::fake::{instance, machine},
        kube::fixtures::node,
    };

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_node_is_asked_about_when_it_is_new_or_due() {
        let mut attention = Attention::default();
        assert_eq!(
            attention.question(&node("n").tainted_uninitialized()),
            Question::Ask(Freshness::ReadThrough)
        );
        assert_eq!(attention.question(&node("n")), Question::Wait, "NODE-14, perhaps it is nobody's");
        let mut said = |state| attention.answered("n", &machine(state, None), Instant::now());
        said(InstanceState::Running);
        said(InstanceState::Unspecified);
        assert_eq!(attention.question(&node("n")), Question::Labels);
        attention.due("n", Freshness::AtMost(MINUTE));
        attention.due("n", Freshness::ReadThrough);
        attention.due("n", Freshness::AtMost(MINUTE));
        assert_eq!(
            attention.question(&node("n")),
            Question::Ask(Freshness::ReadThrough),
            "the freshest wish counts"
        );
        assert_eq!(attention.question(&node("n")), Question::Labels, "once");
        attention.answered("n", &machine(InstanceState::NotOwned, None), Instant::now());
        assert_eq!(attention.question(&node("n")), Question::Wait, "it is left alone");
    }

    #[test]
    fn our_own_write_is_waited_for() {
        let tainted = |version: &str| node("n").tainted_uninitialized().version(version);
        let mut attention = Attention::default();
        attention.untainted(&tainted("5"), "9");
        assert_eq!(attention.question(&tainted("5")), Question::Wait);
        attention.due("n", Freshness::ReadThrough);
        assert_eq!(attention.question(&tainted("8")), Question::Wait, "our write of the addresses");
        assert!(attention.is_due("n"), "for later");
        assert_eq!(
            attention.question(&tainted("8").uid("other")),
            Question::Ask(Freshness::ReadThrough),
            "a new node"
        );
        attention.untainted(&tainted("5"), "9");
        assert_eq!(
            attention.question(&tainted("10")),
            Question::Ask(Freshness::ReadThrough),
            "tainted again by somebody"
        );
        attention.untainted(&tainted("5"), "odd");
        assert_eq!(attention.question(&tainted("5")), Question::Ask(Freshness::ReadThrough));
    }

    #[test]
    fn knows_whether_an_answer_is_news() {
        let (mut attention, now) = (Attention::default(), Instant::now());
        let mut answered =
            |state, id: &str| attention.answered("n", &machine(state, Some(instance(id))), now);
        assert!(!answered(InstanceState::Running, "fake://1"), "nothing was known before");
        assert!(!answered(InstanceState::Running, "fake://1"));
        assert!(answered(InstanceState::Stopped, "fake://1"));
        assert!(answered(InstanceState::Stopped, "fake://2"));
    }

    #[test]
    fn knows_how_old_the_last_answer_is() {
        let (mut attention, start) = (Attention::default(), Instant::now());
        assert!(!attention.is_answered_within("n", MINUTE, start));
        attention.answered("n", &machine(InstanceState::Absent, None), start);
        assert!(attention.is_answered_within("n", MINUTE, start + MINUTE / 2));
        assert!(!attention.is_answered_within("n", MINUTE, start + MINUTE));
        attention.forget("n");
        assert!(!attention.is_answered_within("n", MINUTE, start));
    }
}
