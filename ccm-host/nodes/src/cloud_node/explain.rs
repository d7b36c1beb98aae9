//! Says why a node is not initialised or refreshed, or that it is.
//!
//! In: the node's reports, its place in the queue, and the last answer. Out: explanations.

use ccm_state::{Explanation, Report, Standing};

use super::{COMPONENT, Controller, is_new};
use ccm_base::clock;
use ccm_cloud::NodeOwner;
use ccm_kube::Node;
use ccm_reconcile::explain::{Explain, explanation};

impl Explain for Controller {
    fn explain_all(&self, node: &Node) -> Vec<Explanation> {
        if !self.parts.is_ours(node) || matches!(self.parts.providers.for_node(node), NodeOwner::Nobody) {
            return Vec::new();
        }
        let (lane, owner) = (self.lane(node), self.parts.provider_of(node));
        let provider =
            owner.as_ref().map_or("its provider".to_owned(), |owner| format!("provider {:?}", owner.name()));
        let own = self.parts.settings.nodes.node_status_update_frequency;
        let period = owner.as_ref().map_or(own, |owner| self.period(owner));
        let mut said = lane.reports.explain(&node.uid);
        if said.is_empty() {
            said.push(Explanation {
                retries: lane.queue.retries(&node.name),
                last_attempt: self.memory.lock().answered_at(&node.name).map(clock::at),
                next_attempt: lane.queue.due(&node.name).map(clock::at),
                ..undisturbed(is_new(node))
            });
        }
        let next = if is_new(node) {
            format!(
                "the host asks {provider} again; once it describes the instance, the host writes provider ID, addresses \
                 and labels, and removes the uninitialized taint"
            )
        } else {
            format!(
                "the host compares the node with what {provider} says every {period:?}, and when that changes"
            )
        };
        said.iter_mut().for_each(|said| said.next.clone_from(&next));
        said
    }

    fn reports(&self) -> Vec<Report> {
        [&self.new, &self.known].into_iter().flat_map(|lane| lane.reports.all()).collect()
    }
}

/// What there is to say of a node about which nothing is reported.
fn undisturbed(is_new: bool) -> Explanation {
    let (standing, reason, why) = if is_new {
        (Standing::Waiting, "NotAskedYet", "the node is new, and no provider has answered about it yet")
    } else {
        (Standing::Settled, "Initialized", "the node is initialised")
    };
    explanation(COMPONENT, standing, reason, why, "")
}
