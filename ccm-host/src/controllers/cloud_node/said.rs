//! What people were told about each node, so that nothing is told twice while it stays so.
//!
//! In: everything there is to say about a node now. Out: what of that is news. Only nodes with something to say take room.

use std::collections::HashMap;

use super::{Shared, decide::Notice};
use crate::{
    cloud::{self, InstanceAnswer, ProviderEvent},
    kube::{events::EventType, node::Node},
};

type Topic = (&'static str, String);

/// The memory.
#[derive(Debug, Default)]
pub(super) struct Said(HashMap<String, Vec<Topic>>);

impl Said {
    /// Of these, what was not said before. What is not among them any more will be news again.
    pub(super) fn news(&mut self, node: &str, notices: Vec<Notice>) -> Vec<Notice> {
        let topics: Vec<Topic> = notices.iter().map(|notice| (notice.reason, notice.about.clone())).collect();
        let before =
            if topics.is_empty() { self.0.remove(node) } else { self.0.insert(node.to_owned(), topics) };
        let before = before.unwrap_or_default();
        let known = |notice: &Notice| {
            before.iter().any(|(reason, about)| *reason == notice.reason && *about == notice.about)
        };
        notices.into_iter().filter(|notice| !known(notice)).collect()
    }

    /// The node is gone.
    pub(super) fn forget(&mut self, node: &str) {
        self.0.remove(node);
    }
}

impl Shared {
    /// Says what is news among everything there is to say about the node now.
    pub(super) fn say(&self, node: &Node, notices: Vec<Notice>) {
        for Notice { type_, reason, about: _, message } in self.said.lock().news(&node.name, notices) {
            self.context.recorder.record(node, type_, reason, message);
        }
    }

    /// Passes on the events that the provider wants on the node.
    pub(super) fn pass_on(&self, node: &Node, answer: &InstanceAnswer) {
        for ProviderEvent { kind, reason, message } in &answer.events {
            let type_ = match kind {
                cloud::EventType::Normal => EventType::Normal,
                cloud::EventType::Warning => EventType::Warning,
            };
            self.context.recorder.record(node, type_, reason.clone(), message.as_str());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::events::EventType;

    fn notice(reason: &'static str, about: &str) -> Notice {
        Notice { type_: EventType::Warning, reason, about: about.to_owned(), message: String::new() }
    }

    #[test]
    fn says_it_once_for_as_long_as_it_stays() {
        let mut said = Said::default();
        let (a, b) = (notice("R", "a"), notice("R", "b"));
        let mut news = |node, about: &[&str]| {
            let told = about.iter().map(|about| notice("R", about)).collect();
            said.news(node, told)
        };
        let (only_a, only_b) = (vec![a], vec![b]);
        assert_eq!(news("n", &["a"]), only_a);
        assert_eq!(news("n", &["a"]), []);
        assert_eq!(news("n", &["a", "b"]), only_b, "another reason");
        assert_eq!(news("m", &["a"]), only_a, "another node");
        assert_eq!(news("n", &[]), []);
        assert_eq!(news("n", &["a"]), only_a, "it came back");
        said.forget("n");
        assert_eq!(said.news("n", only_a.clone()), only_a);
    }
}
