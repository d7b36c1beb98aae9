//! Says why a node is not initialised or refreshed.
//!
//! In: the last obstacle of each node that has one, its place in the queue, and the last answer. Out: an explanation.

use std::{collections::HashMap, time::Duration};

use ccm_state::{Explanation, Standing};
use jiff::Timestamp;

use super::{COMPONENT, Controller, decide::Obstacle, is_new};
use crate::{
    clock,
    cloud::NodeOwner,
    controllers::explain::{Explain, explanation},
    kube::Node,
};

/// The last obstacle of each node, by name; a node without one takes no memory.
#[derive(Debug, Default)]
pub(super) struct Obstacles(HashMap<String, Met>);

#[derive(Debug, Clone)]
struct Met {
    at: Timestamp,
    standing: Standing,
    reason: String,
    message: String,
}

/// What is known of one node. Plain values, so that the words can be tested.
#[derive(Debug)]
struct Known {
    is_new: bool,
    met: Option<Met>,
    /// Who is asked.
    provider: Option<String>,
    retries: u32,
    next: Option<Timestamp>,
    answered: Option<Timestamp>,
    period: Duration,
}

impl Obstacles {
    pub(super) fn met(&mut self, node: &Node, obstacle: &Obstacle) {
        let standing = if obstacle.expected { Standing::Waiting } else { Standing::Blocked };
        self.note(node, standing, &obstacle.reason, &obstacle.message);
    }

    pub(super) fn note(&mut self, node: &Node, standing: Standing, reason: &str, message: &str) {
        let met = Met { at: clock::now(), standing, reason: reason.to_owned(), message: message.to_owned() };
        self.0.insert(node.name.clone(), met);
    }

    pub(super) fn clear(&mut self, name: &str) {
        self.0.remove(name);
    }
}

impl Explain for Controller {
    fn explain(&self, node: &Node) -> Option<Explanation> {
        if !self.parts.is_ours(node) || matches!(self.parts.providers.for_node(node), NodeOwner::Nobody) {
            return None;
        }
        let owner = self.parts.provider_of(node);
        Some(explain(&Known {
            is_new: is_new(node),
            met: self.obstacles.lock().0.get(&node.name).cloned(),
            retries: self.lane(node).queue.retries(&node.name),
            next: self.lane(node).queue.due(&node.name).map(clock::at),
            answered: self.memory.lock().answered_at(&node.name).map(clock::at),
            period: owner
                .as_ref()
                .map_or(self.parts.settings.nodes.node_status_update_frequency, |one| self.period(one)),
            provider: self.parts.providers.for_node(node).provider().map(|owner| owner.name().to_owned()),
        }))
    }
}

fn explain(known: &Known) -> Explanation {
    let provider =
        known.provider.as_ref().map_or("its provider".to_owned(), |name| format!("provider {name:?}"));
    let period = known.period;
    let said = match (&known.met, known.is_new) {
        (Some(met), true) if met.standing == Standing::LeftAlone => explanation(
            COMPONENT,
            Standing::LeftAlone,
            &met.reason,
            format!("the node is not initialised: {}", met.message),
            format!("the host asks {provider} again every {period:?}"),
        ),
        (Some(met), true) => explanation(
            COMPONENT,
            met.standing,
            &met.reason,
            format!("the node is not initialised yet: {}", met.message),
            format!(
                "the host asks {provider} again; once it describes the instance, the host writes provider ID, addresses \
                 and labels, and removes the uninitialized taint"
            ),
        ),
        (None, true) => explanation(
            COMPONENT,
            Standing::Waiting,
            "NotAskedYet",
            "the node is new, and no provider has answered about it yet",
            format!("the host asks {provider}, and initialises the node with the answer"),
        ),
        (Some(met), false) => explanation(
            COMPONENT,
            Standing::Waiting,
            &met.reason,
            format!("the node is initialised, but its last refresh failed: {}", met.message),
            format!("the host asks {provider} again, in the sweep every {period:?} at the latest"),
        ),
        (None, false) => explanation(
            COMPONENT,
            Standing::Settled,
            "Initialized",
            "the node is initialised",
            format!("the host compares it with what {provider} says every {period:?}, and when that changes"),
        ),
    };
    Explanation {
        retries: known.retries,
        last_attempt: known.met.as_ref().map(|met| met.at).or(known.answered),
        next_attempt: known.next,
        ..said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(is_new: bool, met: Option<(Standing, &str)>) -> Known {
        let met = met.map(|(standing, reason)| Met {
            at: Timestamp::UNIX_EPOCH,
            standing,
            reason: reason.to_owned(),
            message: "so".to_owned(),
        });
        let (provider, period) = (Some("mock".to_owned()), Duration::from_secs(300));
        Known { is_new, met, provider, retries: 3, next: None, answered: None, period }
    }

    #[test]
    fn a_node_is_explained_by_its_last_obstacle() {
        use Standing as S;
        let rows = [
            (true, None, S::Waiting, "NotAskedYet", "no provider has answered"),
            (
                true,
                Some((S::Blocked, "InstanceAbsent")),
                S::Blocked,
                "InstanceAbsent",
                "not initialised yet: so",
            ),
            (
                true,
                Some((S::Waiting, "InstancePending")),
                S::Waiting,
                "InstancePending",
                "not initialised yet: so",
            ),
            (
                true,
                Some((S::LeftAlone, "InstanceNotOwned")),
                S::LeftAlone,
                "InstanceNotOwned",
                "not initialised: so",
            ),
            (
                false,
                Some((S::Blocked, "RATE_LIMITED")),
                S::Waiting,
                "RATE_LIMITED",
                "last refresh failed: so",
            ),
            (false, None, S::Settled, "Initialized", "is initialised"),
        ];
        for (is_new, met, standing, reason, why) in rows {
            let said = explain(&known(is_new, met));
            assert_eq!((said.standing, said.reason.as_str()), (standing, reason));
            assert!(said.why.contains(why) && said.next.contains("\"mock\""), "{said:?}");
            assert_eq!(said.retries, 3);
        }
    }
}
