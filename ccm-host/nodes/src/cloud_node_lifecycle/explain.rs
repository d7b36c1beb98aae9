//! Shows the guard, and says why a node that is not ready is kept.
//!
//! In: what each pass concluded. Out: the guard's state, and explanations. Every word about a rule is the rule's own.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use ccm_state::{AbsentNode, Explanation, Guard, Standing};
use jiff::Timestamp;

use super::{
    COMPONENT, Controller, DomainMemory, OWNERLESS,
    decide::{CONFIRM_DELETION, is_ready, is_vouched_for},
    domain, held_back,
    observe::SeenNodes,
    rule::Rule,
};
use ccm_base::clock;
use ccm_cloud::NodeOwner;
use ccm_kube::Node;
use ccm_reconcile::{
    explain::{Explain, explanation},
    settings::lifecycle::{LifecycleSettings, ShutdownPolicy},
    taint,
};

impl Controller {
    /// Discards what the provider said, and notes why.
    pub(super) fn distrust(&self, memory: &mut DomainMemory<'_>, why: &str) {
        memory.guard.distrust();
        memory.stops.distrust();
        self.note_distrust(memory, why);
    }

    /// Notes why nothing is deleted.
    pub(super) fn note_distrust(&self, memory: &DomainMemory<'_>, why: &str) {
        let mut passes = self.passes.lock();
        let nodes = passes.get(&memory.domain.name).map_or(0, |before| before.nodes);
        let guard = Guard { distrust: Some(why.to_owned()), nodes, ..concluded(memory) };
        passes.insert(memory.domain.name.clone(), guard);
    }

    /// Notes the ruling of a pass.
    pub(super) fn note_pass(
        &self,
        memory: &DomainMemory<'_>,
        nodes: usize,
        seen: &SeenNodes,
        held: &HashMap<String, Rule>,
    ) {
        let LifecycleSettings { node_deletion_confirmations: needed, node_deletion_grace: grace, .. } =
            self.parts.settings.lifecycle;
        let absent = |node: &Arc<Node>| {
            let rule = held.get(&node.uid).copied();
            let confirmations = memory.guard.confirmations(&node.uid);
            AbsentNode {
                name: node.name.clone(),
                uid: node.uid.clone(),
                confirmations,
                needed,
                rule: rule.map(|rule| rule.reason().to_owned()),
                confirmed: is_vouched_for(node),
                why: why(node, rule, confirmations, grace),
            }
        };
        let mut absent: Vec<_> = seen.absent_nodes().chain(&seen.nameless).map(absent).collect();
        absent.sort_by(|one, other| one.name.cmp(&other.name));
        let guard = Guard { nodes, uncertain: seen.uncertain.len(), absent, ..concluded(memory) };
        self.passes.lock().insert(memory.domain.name.clone(), guard);
    }
}

/// A pass that ends now, without its findings.
fn concluded(memory: &DomainMemory<'_>) -> Guard {
    Guard {
        provider: memory.domain.name.clone(),
        last_pass: clock::now(),
        distrust: None,
        contradicted: memory.guard.is_contradicted(),
        nodes: 0,
        uncertain: 0,
        absent: Vec::new(),
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

impl Explain for Controller {
    fn explain(&self, node: &Node) -> Vec<Explanation> {
        if is_ready(node) {
            return Vec::new();
        }
        let owner = self.parts.providers.for_node(node);
        vec![of_silent(node, owner, &self.passes.lock(), &self.parts.settings.lifecycle)]
    }

    fn guard(&self) -> Vec<Guard> {
        let concerns_nodes = |guard: &&Guard| guard.provider != OWNERLESS || guard.nodes > 0;
        self.passes.lock().values().filter(concerns_nodes).cloned().collect()
    }
}

/// Why a node that is not ready is kept.
fn of_silent(
    node: &Node,
    owner: NodeOwner,
    passes: &BTreeMap<String, Guard>,
    settings: &LifecycleSettings,
) -> Explanation {
    let is_undecided = matches!(owner, NodeOwner::Undecided);
    let owners = owner.possible();
    let guard = domain(&owners).and_then(|domain| passes.get(domain));
    let absent = guard.and_then(|guard| {
        let found = guard.absent.binary_search_by(|absent| absent.name.as_str().cmp(&node.name)).ok()?;
        Some((guard, guard.absent.get(found)?))
    });
    if let Some((guard, absent)) = absent.filter(|(_, absent)| absent.uid == node.uid) {
        let said = Explanation { last_attempt: Some(guard.last_pass), ..of_absent(node, absent) };
        let ends =
            (absent.confirmations == 0).then(|| grace_end(node, settings.node_deletion_grace)).flatten();
        return Explanation { next_attempt: ends, ..said };
    }
    // A node has no owner until all providers have introduced themselves.
    let distrust = match guard {
        Some(guard) => guard.distrust.as_ref(),
        None if is_undecided => passes.values().find_map(|guard| guard.distrust.as_ref()),
        None => None,
    };
    match (held_back(node), distrust) {
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
            format!("the node is not Ready, and what providers say of instances is not believed now: {why}"),
            "nothing is deleted; the host checks again in the next pass",
        ),
        (None, None) if node.has_taint(taint::SHUTDOWN) => of_stopped(node, settings.node_shutdown_policy),
        (None, None) => explanation(
            COMPONENT,
            Standing::Settled,
            "NotReady",
            "the node is not Ready, and its provider does not report its instance as absent: it is kept",
            "the host checks its instance every --node-monitor-period, and deletes the node only when it is gone",
        ),
    }
}

fn of_stopped(node: &Node, policy: ShutdownPolicy) -> Explanation {
    let stopped = "the node is not Ready, and its provider reports that its instance is stopped: it is kept";
    let back = "the taints go when the instance runs again";
    let next = match policy {
        _ if node.taints.iter().any(taint::is_of_given_up) => {
            format!("it is given up, so that its pods move; {back}")
        }
        ShutdownPolicy::None | ShutdownPolicy::Taint => {
            format!("new pods stay away, and old ones are left to Kubernetes; {back}")
        }
        ShutdownPolicy::Evict | ShutdownPolicy::OutOfService => format!(
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
            let overrule = format!(
                "to delete this node nevertheless: ccmctl guard confirm {}, which annotates it with {CONFIRM_DELETION}={uid}",
                node.name
            );
            let confirm = match Rule::ALL.into_iter().find(|known| known.reason() == rule) {
                Some(rule) => rule.remedy(overrule),
                None => overrule,
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
    use ccm_cloud::{Provider, Providers, fake::FakeProvider};
    use ccm_kube::fixtures::node;

    fn said(node: &Node, guard: Guard) -> Explanation {
        let fakes = ["mock", "other"].map(|name| FakeProvider::new(name) as Arc<dyn Provider>);
        let owner = Providers::new(fakes.to_vec()).for_node(node);
        let settings = LifecycleSettings {
            node_shutdown_policy: ShutdownPolicy::OutOfService,
            ..ccm_reconcile::stage::settings().lifecycle
        };
        of_silent(node, owner, &[(guard.provider.clone(), guard)].into(), &settings)
    }

    fn guard() -> Guard {
        Guard {
            provider: "mock".to_owned(),
            last_pass: Timestamp::UNIX_EPOCH,
            distrust: None,
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
        let silent = node("n").with_provider_id("mock://n").not_ready();
        let with = |absent| Guard { absent: vec![absent], ..guard() };
        let rows = [
            (
                with(absent(&silent, Some(Rule::Share), 2)),
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
            (guard(), Standing::Settled, "NotReady", "checks its instance"),
            (
                Guard { distrust: Some("down".to_owned()), ..guard() },
                Standing::Waiting,
                "ProviderNotTrusted",
                "nothing is deleted",
            ),
        ];
        for (guard, standing, reason, next) in rows {
            let said = said(&silent, guard);
            assert_eq!((said.standing, said.reason.as_str()), (standing, reason));
            assert!(said.next.contains(next), "{said:?}");
        }
        let down = || Guard { distrust: Some("down".to_owned()), ..guard() };
        for others in [node("n").not_ready().with_provider_id("other://n"), node("n").not_ready()] {
            assert_eq!(said(&others, down()).reason, "NotReady", "mock's passes do not concern it");
        }
        let stopped = silent.with_taint(taint::SHUTDOWN, "", "NoSchedule");
        let why = said(&stopped, guard());
        assert_eq!((why.standing, why.reason.as_str()), (Standing::Settled, "InstanceStopped"));
        assert!(why.next.contains("--node-shutdown-policy=out-of-service"), "{why:?}");
        let given_up = Node { taints: vec![taint::out_of_service(), taint::shutdown()], ..stopped };
        assert!(said(&given_up, guard()).next.contains("given up"));
    }
}
