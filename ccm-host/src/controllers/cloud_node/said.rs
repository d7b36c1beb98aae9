//! Emits a node's Events.

use super::{Controller, decide::Notice};
use crate::{
    cloud::InstanceAnswer,
    kube::node::Node,
    reconcile::{ToldOnce, pass_on},
};

/// The notices already emitted, by reason and subject.
pub(super) type Said = ToldOnce<(&'static str, String)>;

impl Controller {
    /// Emits those of the node's current notices that are new.
    pub(super) fn say(&self, node: &Node, notices: Vec<Notice>) {
        let topic = |notice: &Notice| (notice.reason, notice.about.clone());
        for Notice { type_, reason, about: _, message } in self.said.lock().news(&node.name, notices, topic) {
            self.recorder.record(node, type_, reason, message);
        }
    }

    /// Emits the Events that the provider attached to its answer.
    pub(super) fn pass_on(&self, node: &Node, answer: &InstanceAnswer) {
        pass_on(&self.recorder, node, &answer.events);
    }
}
