//! Says why a node has no pod CIDR.

use ccm_state::{Explanation, Standing};

use super::{COMPONENT, Controller, decide};
use crate::{
    clock,
    controllers::explain::{Explain, explanation},
    kube::Node,
};

impl Explain for Controller {
    fn explain(&self, node: &Node) -> Option<Explanation> {
        if !self.scope.contains(node) {
            return None;
        }
        let problems = self.problems.lock().told(&node.uid);
        let reason = problems.first().map(|problem| problem.reason());
        let told = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let said = match (decide::wants(node), reason) {
            (true, Some(reason)) => explanation(
                COMPONENT,
                Standing::Blocked,
                reason,
                told,
                "the host assigns a pod CIDR as soon as there is one for this node",
            ),
            (true, None) => explanation(
                COMPONENT,
                Standing::Waiting,
                "NoPodCIDRYet",
                "the node has no pod CIDR yet",
                "the host assigns one",
            ),
            (false, Some(reason)) => explanation(
                COMPONENT,
                Standing::Blocked,
                reason,
                told,
                "the host never changes a pod CIDR: recreate the node without it",
            ),
            (false, None) => return None,
        };
        let (retries, next) = (self.queue.retries(&node.name), self.queue.due(&node.name));
        Some(Explanation { retries, next_attempt: next.map(clock::at), ..said })
    }
}
