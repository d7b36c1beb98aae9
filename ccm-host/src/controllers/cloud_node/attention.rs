//! Which nodes have to be asked about. Pure bookkeeping; time is an argument.
//!
//! A new node is always asked about. One that is initialised is asked about when it is due: its sweep has come, the
//! provider told of a change, or the kubelet changed what the answer depends on. Who says so is in [`super::triggers`].

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use tokio::time::Instant;

use super::is_new;
use crate::{
    cloud::{Freshness, InstanceAnswer, InstanceState},
    kube::node::Node,
};

/// The memory. Only what differs from the ordinary takes room in it, except for the time of the last answer.
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
    /// What was said, as a number: whether the next answer says something else.
    said: u64,
    /// The cloud of a provider of ours has the machine; an answer that says nothing takes nothing back.
    is_ours: bool,
}

/// A write of ours that the cache may not have seen yet.
#[derive(Debug)]
struct Untainted {
    uid: String,
    version: u64,
}

/// What a look at a node begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    /// It has to be asked about; so fresh.
    Ask(Freshness),
    /// Its labels alone.
    Labels,
    /// Nothing now. Either the cache has not seen our own write yet: when it does, that is a change, and brings us back. Or
    /// nobody said so far that the node is ours: who says so brings its labels along.
    Wait,
}

impl Attention {
    /// What to do about the node. A node that is due is so only once.
    pub(super) fn question(&mut self, node: &Node) -> Question {
        if !is_new(node) {
            self.untainted.remove(&node.name);
            let is_ours = self.answered.get(&node.name).is_some_and(|last| last.is_ours);
            let otherwise = if is_ours { Question::Labels } else { Question::Wait };
            return self.due.remove(&node.name).map_or(otherwise, Question::Ask);
        }
        self.due.remove(&node.name);
        let ours = self.untainted.get(&node.name).filter(|ours| ours.uid == node.uid);
        if ours.is_some_and(|ours| version(&node.resource_version).is_some_and(|seen| seen < ours.version)) {
            return Question::Wait;
        }
        self.untainted.remove(&node.name);
        Question::Ask(Freshness::ReadThrough)
    }

    /// The node is to be asked about at its next look. Of several wishes the freshest counts.
    pub(super) fn due(&mut self, name: &str, freshness: Freshness) {
        let before = self.due.get(name).copied().unwrap_or(freshness);
        self.due.insert(name.to_owned(), before.min(freshness));
    }

    /// An answer came. Whether it says something else than the one before.
    pub(super) fn answered(&mut self, name: &str, answer: &InstanceAnswer, now: Instant) -> bool {
        let mut hasher = DefaultHasher::new();
        (answer.state, &answer.instance).hash(&mut hasher);
        let said = hasher.finish();
        let was_ours = self.answered.get(name).is_some_and(|last| last.is_ours);
        let is_ours = match answer.state {
            InstanceState::NotOwned | InstanceState::Absent => false,
            InstanceState::Unknown => was_ours,
            _ => true,
        };
        let before = self.answered.insert(name.to_owned(), Answered { at: now, said, is_ours });
        before.is_some_and(|before| before.said != said)
    }

    /// Whether the last answer is younger than that.
    pub(super) fn is_answered_within(&self, name: &str, age: Duration, now: Instant) -> bool {
        self.answered.get(name).is_some_and(|last| now.saturating_duration_since(last.at) < age)
    }

    /// The taint was removed, which gave the node this version.
    pub(super) fn untainted(&mut self, node: &Node, resource_version: &str) {
        if let Some(version) = version(resource_version) {
            self.untainted.insert(node.name.clone(), Untainted { uid: node.uid.clone(), version });
        }
    }

    /// The node is gone.
    pub(super) fn forget(&mut self, name: &str) {
        self.due.remove(name);
        self.answered.remove(name);
        self.untainted.remove(name);
    }
}

/// Resource versions of one kind of object are numbers that grow.
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
        said(InstanceState::Unknown);
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
        assert_eq!(attention.question(&tainted("8")), Question::Wait, "our write of the addresses");
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
