//! What the host shows to people, put together from its parts.
//!
//! In: the parts, and what each controller says of itself once it runs. Out: the documents behind `/state`.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_state::{
    API_VERSION, Explanation, Host, HostState, Leadership as Leads, NodeState, NodeSummary, Queue, Standing,
    inventory::Inventory, shadow::ShadowReport,
};
use jiff::Timestamp;

use super::shadow::Comparison;
use crate::{
    clock,
    cloud::{CloudError, NodeOwner, ProviderStatus, Providers, Question, RemoteProvider},
    controllers::{
        Parts,
        explain::{Views, explanation},
        node_scope::{EXCLUDE_LABEL, NodeScope},
    },
    election::{Leadership, Leading},
    kube::{Cache, Node, queue::QueueMetrics},
    manager::{
        COMMIT, VERSION,
        health::{Checks, Probe},
        process::Process,
        serving::state::Source,
    },
};

const HOST: &str = "ccm-host";

#[derive(Debug)]
struct State {
    checks: Checks,
    controllers: Vec<String>,
    started: Timestamp,
    scope: NodeScope,
    leadership: Leadership,
    providers: Providers,
    remotes: Vec<Arc<RemoteProvider>>,
    nodes: Cache<Node>,
    queues: QueueMetrics,
    views: Arc<Views>,
    comparison: Option<Comparison>,
}

/// Lets people see the state from now on.
pub(super) fn open(
    process: &Process,
    parts: &Parts,
    leadership: Leadership,
    remotes: Vec<Arc<RemoteProvider>>,
    comparison: Option<Comparison>,
) {
    process.state().open(Arc::new(State {
        checks: process.checks().clone(),
        controllers: process.settings().enabled.iter().map(|one| one.name.to_owned()).collect(),
        started: clock::now(),
        scope: parts.settings.scope(),
        leadership,
        remotes,
        providers: parts.providers.clone(),
        nodes: parts.nodes.clone(),
        queues: parts.metrics.queue.clone(),
        views: Arc::clone(&parts.views),
        comparison,
    }));
}

impl State {
    fn leads(&self) -> Leads {
        match self.leadership.clone().heard() {
            Leading::Always => Leads::Always,
            Leading::No => Leads::Standby,
            Leading::Shadow => Leads::Shadow,
            Leading::Until { .. } => Leads::Leader,
        }
    }

    /// Worst first.
    fn explain(&self, node: &Node, leads: Leads) -> Vec<Explanation> {
        let general = general(node, &self.facts(node, leads));
        let mut all: Vec<_> = general.into_iter().collect();
        if leads != Leads::Standby {
            all.extend(self.views.of_node(node));
        }
        all.sort_by_key(|one| std::cmp::Reverse(one.standing));
        all
    }

    fn facts(&self, node: &Node, leads: Leads) -> Facts {
        let owner = match self.providers.for_node(node) {
            NodeOwner::Provider(provider) => {
                Owner::Provider(provider.name().to_owned(), provider.status().borrow().clone())
            }
            NodeOwner::Candidates(_) => Owner::Candidates,
            NodeOwner::Undecided => Owner::Undecided(self.unknown()),
            NodeOwner::Nobody => Owner::Nobody,
        };
        Facts { stands_by: leads == Leads::Standby, in_scope: self.scope.contains(node), owner }
    }

    /// The providers that never completed a handshake, and why.
    fn unknown(&self) -> String {
        let unknown = self.providers.all().iter().filter(|provider| provider.info().is_none());
        let told = unknown.map(|provider| match &*provider.status().borrow() {
            ProviderStatus::Disconnected(why) => format!("provider {:?}: {why}", provider.name()),
            ProviderStatus::Frozen(_) | ProviderStatus::Serving => format!("provider {:?}", provider.name()),
        });
        told.collect::<Vec<_>>().join("; ")
    }

    fn summary(&self, node: &Node, explanations: &[Explanation]) -> NodeSummary {
        let worst = explanations.first();
        let standing = worst.map_or(Standing::Settled, |worst| worst.standing);
        NodeSummary {
            name: node.name.clone(),
            provider: self.providers.for_node(node).provider().map(|owner| owner.name().to_owned()),
            ready: node.condition("Ready").is_some_and(|ready| ready.status == "True"),
            standing,
            why: worst
                .filter(|_| standing != Standing::Settled)
                .map(|worst| worst.why.clone())
                .unwrap_or_default(),
        }
    }

    fn nodes(&self, leads: Leads) -> Vec<NodeSummary> {
        let mut nodes: Vec<_> =
            self.nodes.list().iter().map(|node| self.summary(node, &self.explain(node, leads))).collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        nodes
    }
}

#[async_trait]
impl Source for State {
    fn state(&self) -> HostState {
        let leads = self.leads();
        let not_ready = self.checks.ask_all(Probe::Ready).into_iter().filter_map(|outcome| {
            let why = outcome.result.err()?;
            Some(format!("{}: {why}", outcome.name))
        });
        let views = &self.views;
        let queues = self.queues.samples().into_iter().map(|sample| Queue {
            name: sample.name.to_owned(),
            depth: sample.depth,
            delayed: sample.delayed,
            adds: sample.added,
            retries: sample.retried,
            longest_seconds: sample.longest_seconds,
        });
        HostState {
            api_version: API_VERSION.to_owned(),
            kind: "HostState".to_owned(),
            time: clock::now(),
            host: Host {
                version: VERSION.to_owned(),
                commit: COMMIT.to_owned(),
                started: self.started,
                not_ready: not_ready.collect(),
                leadership: leads,
                controllers: self.controllers.clone(),
            },
            providers: self.remotes.iter().map(|provider| provider.report()).collect(),
            nodes: self.nodes(leads),
            guard: views.guard(),
            services: views.services(),
            routes: views.routes(),
            queues: queues.collect(),
        }
    }

    fn node(&self, name: &str) -> Option<NodeState> {
        let node = self.nodes.get(name)?;
        let explanations = self.explain(&node, self.leads());
        Some(NodeState {
            api_version: API_VERSION.to_owned(),
            kind: "NodeState".to_owned(),
            time: clock::now(),
            summary: self.summary(&node, &explanations),
            uid: node.uid.clone(),
            provider_id: node.provider_id.clone(),
            explanations,
        })
    }

    fn shadow(&self) -> Option<ShadowReport> {
        let comparison = self.comparison.as_ref()?;
        let not_ready = self.checks.ask_all(Probe::Ready).into_iter().filter_map(|outcome| {
            let why = outcome.result.err()?;
            Some(format!("{}: {why}", outcome.name))
        });
        let is_blocked = |standing| standing == Standing::Blocked;
        let nodes = self.nodes(self.leads()).into_iter().filter(|node| is_blocked(node.standing));
        let nodes = nodes.map(|node| ("Node", String::new(), node.name, node.why));
        let services = self.views.services().into_iter().filter(|service| is_blocked(service.standing));
        let services = services.map(|service| ("Service", service.namespace, service.name, service.why));
        Some(comparison.report(not_ready.collect(), nodes.chain(services).collect()))
    }

    fn providers(&self) -> Vec<String> {
        self.providers.all().iter().map(|provider| provider.name().to_owned()).collect()
    }

    async fn inventory(&self, provider: &str, question: &Question) -> Option<Result<Inventory, CloudError>> {
        use crate::cloud::Provider as _;
        let provider = self.remotes.iter().find(|one| one.name() == provider)?;
        Some(provider.inventory(question).await)
    }
}

/// What matters to every controller.
#[derive(Debug)]
struct Facts {
    stands_by: bool,
    in_scope: bool,
    owner: Owner,
}

#[derive(Debug)]
enum Owner {
    Provider(String, ProviderStatus),
    Candidates,
    /// The providers that are not known yet, and why.
    Undecided(String),
    Nobody,
}

/// What keeps every controller from the node.
fn general(node: &Node, facts: &Facts) -> Option<Explanation> {
    let say =
        |standing, reason, why: String, next: &str| Some(explanation(HOST, standing, reason, why, next));
    if facts.stands_by {
        return say(
            Standing::Waiting,
            "Standby",
            "this replica does not lead, so it changes nothing and knows less than the leader".to_owned(),
            "ask the leader: the holder of the Lease; this replica takes over when that ends",
        );
    }
    if node.is_deleting() {
        let why = "the node is being deleted: somebody asked for it, and finalizers hold it".to_owned();
        return say(Standing::LeftAlone, "Deleting", why, "the host leaves it alone");
    }
    if !facts.in_scope {
        let why =
            format!("the label {EXCLUDE_LABEL}=true excludes the node, or --node-selector does not match it");
        return say(Standing::LeftAlone, "Excluded", why, "the host leaves it alone until its labels change");
    }
    match &facts.owner {
        Owner::Nobody => {
            let why = match &node.provider_id {
                Some(id) => format!("the provider ID {id:?} has the prefix of no provider of this host"),
                None => "no provider of this host serves instances".to_owned(),
            };
            say(Standing::LeftAlone, "NoProvider", why, "the host leaves it alone until a provider claims it")
        }
        Owner::Undecided(unknown) => say(
            Standing::Blocked,
            "ProviderNotIntroduced",
            format!(
                "whose node it is is not known, since not every provider has answered since the start: {unknown}"
            ),
            "the host connects again by itself, at least every 10 seconds",
        ),
        Owner::Provider(name, ProviderStatus::Disconnected(why)) => say(
            Standing::Blocked,
            "ProviderDisconnected",
            format!("provider {name:?} cannot be asked: {why}"),
            "the host connects again by itself, at least every 10 seconds; until then nothing is changed for this node, \
             and it is not deleted",
        ),
        Owner::Provider(name, ProviderStatus::Frozen(why)) => say(
            Standing::Waiting,
            "ProviderFrozen",
            format!("provider {name:?} is not well: {why}"),
            "the host goes on with what destroys nothing, and deletes nothing until the provider is well",
        ),
        Owner::Provider(_, ProviderStatus::Serving) | Owner::Candidates => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::fixtures::node;

    #[test]
    fn what_concerns_every_controller_is_said_once() {
        let of = |status| Owner::Provider("mock".to_owned(), status);
        let facts = |owner| Facts { stands_by: false, in_scope: true, owner };
        let down = || of(ProviderStatus::Disconnected("connection refused".to_owned()));
        let frozen = || of(ProviderStatus::Frozen("health".to_owned()));
        let rows = [
            ("well", facts(of(ProviderStatus::Serving)), None),
            ("candidates", facts(Owner::Candidates), None),
            ("down", facts(down()), Some((Standing::Blocked, "ProviderDisconnected", "connection refused"))),
            ("frozen", facts(frozen()), Some((Standing::Waiting, "ProviderFrozen", "health"))),
            ("nobody's", facts(Owner::Nobody), Some((Standing::LeftAlone, "NoProvider", "\"x://1\""))),
            (
                "undecided",
                facts(Owner::Undecided("provider \"b\"".to_owned())),
                Some((Standing::Blocked, "ProviderNotIntroduced", "provider \"b\"")),
            ),
            (
                "excluded",
                Facts { in_scope: false, ..facts(down()) },
                Some((Standing::LeftAlone, "Excluded", EXCLUDE_LABEL)),
            ),
            (
                "standby",
                Facts { stands_by: true, ..facts(down()) },
                Some((Standing::Waiting, "Standby", "does not lead")),
            ),
        ];
        for (name, facts, want) in rows {
            let said = general(&node("n").with_provider_id("x://1"), &facts);
            let seen = said.as_ref().map(|said| (said.standing, said.reason.as_str()));
            assert_eq!(seen, want.map(|(standing, reason, _)| (standing, reason)), "{name}");
            assert!(want.is_none_or(|(.., word)| said.unwrap().why.contains(word)), "{name}");
        }
    }
}
