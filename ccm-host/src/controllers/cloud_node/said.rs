//! What people are told about a node.

use super::{Shared, decide::Notice};
use crate::{
    cloud::InstanceAnswer,
    kube::node::Node,
    reconcile::{ToldOnce, pass_on},
};

/// What was told, as reason and what it is about.
pub(super) type Said = ToldOnce<(&'static str, String)>;

impl Shared {
    /// Says what is news among everything there is to say about the node now.
    pub(super) fn say(&self, node: &Node, notices: Vec<Notice>) {
        let topic = |notice: &Notice| (notice.reason, notice.about.clone());
        for Notice { type_, reason, about: _, message } in self.said.lock().news(&node.name, notices, topic) {
            self.context.recorder.record(node, type_, reason, message);
        }
    }

    /// Passes on the events that the provider wants on the node.
    pub(super) fn pass_on(&self, node: &Node, answer: &InstanceAnswer) {
        pass_on(&self.context.recorder, node, &answer.events);
    }
}
