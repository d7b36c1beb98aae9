//! Shows the guard, and says why a node that is not ready is kept.
//!
//! In: what each pass concluded. Out: the guard's state, and explanations. Every word about a rule is the rule's own.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_state::{AbsentNode, Explanation, Guard, Standing};
use jiff::Timestamp;
use parking_lot::Mutex;

use super::{
    COMPONENT, Controller, Memory,
    act::HELD_BACK,
    decide::{CONFIRM_DELETION, is_ready, is_vouched_for},
    guard::{Findings, Rule},
    observe::Seen,
    settings::Policy,
};
use crate::{
    clock,
    cloud::{NodeOwner, Providers},
    controllers::{
        explain::{Explain, explanation},
        taint,
    },
    kube::Node,
};

/// The conclusion of the last pass over each provider's nodes, by the provider's name.
#[derive(Debug, Default)]
pub(super) struct Passes(Mutex<BTreeMap<String, Guard>>);

/// What people may ask this controller; outlives its run.
#[derive(Debug, Clone)]
pub(super) struct View {
    passes: Arc<Passes>,
    providers: Providers,
    grace: Duration,
    policy: Policy,
}

impl Controller {
    pub(super) fn view(&self) -> View {
        let settings = &self.parts.settings.lifecycle;
        View {
            passes: Arc::clone(&self.passes),
            providers: self.parts.providers.clone(),
            grace: settings.node_deletion_grace,
            policy: settings.node_shutdown_policy,
        }
    }

    /// Notes a pass that discarded what the provider said.
    pub(super) fn note_distrust(&self, provider: &str, memory: &Memory, why: &str) {
        let mut passes = self.passes.0.lock();
        let before = passes.remove(provider);
        let guard = Guard {
            provider: provider.to_owned(),
            last_pass: clock::now(),
            distrust: Some(why.to_owned()),
            latched: memory.guard.is_latched(),
            contradicted: memory.guard.is_contradicted(),
            nodes: before.map_or(0, |before| before.nodes),
            uncertain: 0,
            absent: Vec::new(),
        };
        passes.insert(provider.to_owned(), guard);
    }

    /// Notes the ruling of a pass.
    pub(super) fn note_pass(
        &self,
        provider: &str,
        memory: &Memory,
        seen: &Seen,
        findings: &Findings,
        held: &std::collections::HashMap<String, Rule>,
    ) {
        let absent = |node: &Arc<Node>| {
            let rule = held.get(&node.uid).copied();
            let confirmations = memory.guard.confirmations(&node.uid);
            AbsentNode {
                name: node.name.clone(),
                uid: node.uid.clone(),
                confirmations,
                needed: self.parts.settings.lifecycle.node_deletion_confirmations,
                rule: rule.map(|rule| rule.reason().to_owned()),
                confirmed: is_vouched_for(node),
                why: why(node, rule, confirmations, self.parts.settings.lifecycle.node_deletion_grace),
            }
        };
        let guard = Guard {
            provider: provider.to_owned(),
            last_pass: clock::now(),
            distrust: None,
            latched: memory.guard.is_latched(),
            contradicted: memory.guard.is_contradicted(),
            nodes: findings.total,
            uncertain: findings.uncertain,
            absent: seen.absent_nodes().iter().map(absent).collect(),
        };
        self.passes.0.lock().insert(provider.to_owned(), guard);
    }
}

fn why(node: &Node, rule: Option<Rule>, confirmations: u32, grace: Duration) -> String {
    match rule {
        Some(rule) => rule.explanation().to_owned(),
        None if confirmations == 0 => {
            let end = grace_end(node, grace).map_or("it is old enough".to_owned(), |end| end.to_string());
            format!(
                "the node is younger than --node-deletion-grace ({grace:?}): nothing is decided before {end}"
            )
        }
        None => "its absence still needs confirmations, or its deletion is under way".to_owned(),
    }
}

fn grace_end(node: &Node, grace: Duration) -> Option<Timestamp> {
    node.created?.checked_add(grace).ok()
}

impl View {
    /// The guard of each provider's nodes.
    pub(super) fn guard(&self) -> Vec<Guard> {
        self.passes.0.lock().values().cloned().collect()
    }
}

impl View {
    fn may_own(&self, provider: &str, node: &Node) -> bool {
        match self.providers.for_node(node) {
            NodeOwner::Provider(owner) => owner.name() == provider,
            NodeOwner::Candidates(all) => all.iter().any(|one| one.name() == provider),
            NodeOwner::Undecided => true,
            NodeOwner::Nobody => false,
        }
    }
}

impl Explain for View {
    fn explain(&self, node: &Node) -> Option<Explanation> {
        if is_ready(node) {
            return None;
        }
        let passes = self.passes.0.lock();
        let absent = passes.values().find_map(|guard| {
            guard.absent.iter().find(|absent| absent.uid == node.uid).map(|absent| (guard, absent))
        });
        if let Some((guard, absent)) = absent {
            let said = Explanation { last_attempt: Some(guard.last_pass), ..of_absent(node, absent) };
            let ends = (absent.confirmations == 0).then(|| grace_end(node, self.grace)).flatten();
            return Some(Explanation { next_attempt: ends, ..said });
        }
        let held = node.condition(HELD_BACK).filter(|condition| condition.status == "True");
        let distrust = passes
            .values()
            .filter(|guard| self.may_own(&guard.provider, node))
            .find_map(|guard| guard.distrust.as_ref());
        Some(match (held, distrust) {
            (Some(held), _) => explanation(
                COMPONENT,
                Standing::Blocked,
                &held.reason,
                &held.message,
                "the host checks the instance again in the next pass",
            ),
            (None, Some(why)) => explanation(
                COMPONENT,
                Standing::Waiting,
                "ProviderNotTrusted",
                format!(
                    "the node is not Ready, and what providers say of instances is not believed now: {why}"
                ),
                "nothing is deleted; the host checks again in the next pass",
            ),
            (None, None) if node.has_taint(taint::SHUTDOWN) => of_stopped(node, self.policy),
            (None, None) => explanation(
                COMPONENT,
                Standing::Settled,
                "NotReady",
                "the node is not Ready, and its provider does not report its instance as absent: it is kept",
                "the host checks its instance every --node-monitor-period, and deletes the node only when it is gone",
            ),
        })
    }
}

fn of_stopped(node: &Node, policy: Policy) -> Explanation {
    let stopped = "the node is not Ready, and its provider reports that its instance is stopped: it is kept";
    let back = "the taints go when the instance runs again";
    let next = match policy {
        _ if node.taints.iter().any(taint::is_of_given_up) => {
            format!("it is given up, so that its pods move; {back}")
        }
        Policy::None | Policy::Taint => {
            format!("new pods stay away, and old ones are left to Kubernetes; {back}")
        }
        Policy::Evict | Policy::OutOfService => format!(
            "its pods are evicted once its kubelet was silent for --node-shutdown-grace (--node-shutdown-policy={}), unless \
             the Event NodeGivingUpBlocked names a rule; {back}",
            policy.name()
        ),
    };
    explanation(COMPONENT, Standing::Settled, "InstanceStopped", stopped, next)
}

fn of_absent(node: &Node, absent: &AbsentNode) -> Explanation {
    let AbsentNode { rule, why, confirmations, needed, uid, .. } = absent;
    let gone = "the node is not Ready, and its provider reports that its instance is gone";
    match rule.as_deref() {
        Some(rule) => {
            let confirm = if Rule::of_reason(rule).is_some_and(|rule| !rule.may_be_overruled()) {
                "stop its kubelet if the node is really to go".to_owned()
            } else {
                format!(
                    "to delete this node nevertheless: ccmctl guard confirm {}, which annotates it with {CONFIRM_DELETION}={uid}",
                    node.name
                )
            };
            let next = format!("the host checks again in each pass; {confirm}");
            explanation(COMPONENT, Standing::Blocked, rule, format!("{gone}, but {why}"), next)
        }
        None => {
            let counted = format!("{gone} (confirmed {confirmations} of {needed} times); {why}");
            let next =
                "the host deletes the node once its instance was absent often enough and the guard allows it";
            explanation(COMPONENT, Standing::Waiting, "InstanceAbsent", counted, next)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cloud::{Provider, fake::FakeProvider},
        kube::fixtures::node,
    };

    fn view(guard: Guard) -> View {
        let passes = Passes::default();
        passes.0.lock().insert(guard.provider.clone(), guard);
        let fakes = ["mock", "other"].map(|name| FakeProvider::new(name) as Arc<dyn Provider>);
        let providers = Providers::new(fakes.to_vec());
        View {
            passes: Arc::new(passes),
            providers,
            grace: Duration::from_secs(300),
            policy: Policy::OutOfService,
        }
    }

    fn guard() -> Guard {
        Guard {
            provider: "mock".to_owned(),
            last_pass: Timestamp::UNIX_EPOCH,
            distrust: None,
            latched: false,
            contradicted: false,
            nodes: 1,
            uncertain: 0,
            absent: Vec::new(),
        }
    }

    fn absent(node: &Node, rule: Option<Rule>, confirmations: u32) -> AbsentNode {
        AbsentNode {
            name: node.name.clone(),
            uid: node.uid.clone(),
            confirmations,
            needed: 2,
            rule: rule.map(|rule| rule.reason().to_owned()),
            confirmed: false,
            why: why(node, rule, confirmations, Duration::from_secs(300)),
        }
    }

    #[test]
    fn a_node_is_explained_by_the_rule_that_keeps_it() {
        let silent = node("n").not_ready();
        let with = |absent| view(Guard { absent: vec![absent], ..guard() });
        let rows = [
            (
                with(absent(&silent, Some(Rule::Latch), 2)),
                Standing::Blocked,
                "TooManyDeletions",
                "guard confirm n",
            ),
            (
                with(absent(&silent, Some(Rule::Alive), 2)),
                Standing::Blocked,
                "KubeletAlive",
                "stop its kubelet",
            ),
            (with(absent(&silent, None, 1)), Standing::Waiting, "InstanceAbsent", "deletes the node once"),
            (with(absent(&silent, None, 0)), Standing::Waiting, "InstanceAbsent", "deletes the node once"),
            (view(guard()), Standing::Settled, "NotReady", "checks its instance"),
            (
                view(Guard { distrust: Some("down".to_owned()), ..guard() }),
                Standing::Waiting,
                "ProviderNotTrusted",
                "nothing is deleted",
            ),
        ];
        for (view, standing, reason, next) in rows {
            let said = view.explain(&silent).unwrap();
            assert_eq!((said.standing, said.reason.as_str()), (standing, reason));
            assert!(said.next.contains(next), "{said:?}");
        }
        assert!(view(guard()).explain(&node("n").ready()).is_none());
        let others = node("n").not_ready().with_provider_id("other://n");
        let down = || view(Guard { distrust: Some("down".to_owned()), ..guard() });
        assert_eq!(down().explain(&others).unwrap().reason, "NotReady", "its own provider is believed");
        let stopped = silent.with_taint(taint::SHUTDOWN, "", "NoSchedule");
        let said = view(guard()).explain(&stopped).unwrap();
        assert_eq!((said.standing, said.reason.as_str()), (Standing::Settled, "InstanceStopped"));
        assert!(said.next.contains("--node-shutdown-policy=out-of-service"), "{said:?}");
        let given_up = Node { taints: vec![taint::out_of_service(), taint::shutdown()], ..stopped };
        assert!(view(guard()).explain(&given_up).unwrap().next.contains("given up"));
    }
}
