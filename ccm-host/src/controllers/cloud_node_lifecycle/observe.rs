//! Asks the provider about all nodes that are not ready, and about some that are.
//!
//! In: the nodes. Out: those that are absent, confirmed by as many checks as required, and what the provider said
//! about Ready nodes in the last check. Always read from the cloud itself, since a deletion may follow; all questions
//! of one check share calls. If the first check finds no node absent, it is the only one, and asks about no Ready
//! node.

use std::{collections::HashSet, sync::Arc, time::Duration};

use anyhow::Context as _;
use futures::{future::join_all, join};
use jiff::Timestamp;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    Controller, Memory, Parted,
    control::{Life, life, sample},
    decide::{Presence, Verdict, decide, is_given_up, is_vouched_for, presence, zone},
    guard::{Control, Evidence},
};
use crate::{
    clock,
    cloud::{Family, Freshness, InstanceView, Provider, ProviderStatus},
    controllers::node_instance::{self, Found},
    kube::{
        events::EventType,
        node::{Node, Taint},
    },
};

/// Time between two checks of the same nodes. It gives a cloud that answers from several replicas time to contradict
/// itself, and adds to the delay before a node is deleted.
const SECOND_LOOK: Duration = Duration::from_millis(300);

/// What was seen: in one check, and at last in all checks of a pass.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Nodes without an instance.
    pub(super) absent: Vec<Sighting>,
    /// Nodes whose instance is stopped.
    pub(super) stopped: Vec<Sighting>,
    /// Nodes about which nothing certain is known.
    pub(super) uncertain: usize,
    pub(super) control: Control,
}

/// A node, and when the provider looked for its instance.
#[derive(Debug, Clone)]
pub(super) struct Sighting {
    pub(super) node: Arc<Node>,
    pub(super) observed_at: Timestamp,
}

impl Seen {
    /// The absent nodes in the form that the guard expects.
    pub(super) fn evidence(&self, now: Timestamp) -> Vec<Evidence> {
        // A node without a creation time, or with one in the future, counts as brand new.
        let age = |node: &Node| {
            node.created.and_then(|created| Duration::try_from(now.duration_since(created)).ok())
        };
        let evidence = |absent: &Sighting| Evidence {
            uid: absent.node.uid.clone(),
            zone: zone(&absent.node).to_owned(),
            age: age(&absent.node).unwrap_or_default(),
            vouched: is_vouched_for(&absent.node),
            given_up: is_given_up(&absent.node),
            observed_at: absent.observed_at,
        };
        self.absent.iter().map(evidence).collect()
    }

    pub(super) fn absent_nodes(&self) -> Vec<Arc<Node>> {
        self.absent.iter().map(|absent| Arc::clone(&absent.node)).collect()
    }
}

impl Controller {
    /// Minimum time between answers that confirm each other.
    pub(super) fn spacing(&self) -> Duration {
        SECOND_LOOK.min(self.parts.settings.lifecycle.node_monitor_period)
    }

    /// Repeats the check as often as required. `None` if the provider was unhealthy at some point, the cache lacked
    /// something that it wants to know, or a Lease could not be read.
    pub(super) async fn look(
        &self,
        provider: &Arc<dyn Provider>,
        memory: &mut Memory,
        parted: &Parted,
        health: &mut watch::Receiver<ProviderStatus>,
    ) -> Option<Seen> {
        let mut seen = Seen::default();
        let mut asked = parted.not_ready.clone();
        memory.denials.only(&parted.ready);
        for turn in 0..self.parts.settings.lifecycle.node_deletion_confirmations.max(2) {
            if turn > 0 {
                sleep(self.spacing()).await;
            }
            let with_control = asked
                .iter()
                .any(|node| memory.guard.is_suspect(&node.uid) || memory.stops.is_suspect(&node.uid));
            let group = if with_control { self.group(memory, parted, &asked) } else { Vec::new() };
            let at = clock::now();
            let ((observed, taints), presences) = join!(self.observe(asked), self.hear(&group, at));
            if health.has_changed().unwrap_or(true) || !self.knows_enough_for(provider) {
                return None;
            }
            self.write_taints(taints).await;
            seen.uncertain += observed.uncertain;
            seen.absent = observed.absent;
            // Only the first check asks about all nodes.
            seen.stopped.extend(observed.stopped);
            memory.guard.confirm(Instant::now(), &seen.evidence(clock::now()));
            match self.weigh(provider, memory, parted, group, presences).await {
                Ok(control) => seen.control = control,
                Err(error) => {
                    self.none_deleted(provider, &seen.absent_nodes(), &mut memory.failures, &error);
                    return None;
                }
            }
            if !memory.guard.wants_another_look(with_control) {
                break;
            }
            asked = seen.absent_nodes();
        }
        Some(seen)
    }

    fn group(&self, memory: &mut Memory, parted: &Parted, asked: &[Arc<Node>]) -> Vec<Arc<Node>> {
        let zones: HashSet<String> = asked.iter().map(|node| zone(node).to_owned()).collect();
        sample(&parted.ready, &zones, &memory.denials, &mut memory.rng)
    }

    /// Weighs the answers about Ready nodes for and against the provider. Reads the Leases of the nodes that it
    /// denies.
    async fn weigh(
        &self,
        provider: &Arc<dyn Provider>,
        memory: &mut Memory,
        parted: &Parted,
        group: Vec<Arc<Node>>,
        presences: Vec<Presence>,
    ) -> anyhow::Result<Control> {
        let mut control = Control { ready: parted.ready.len(), ..Control::default() };
        let mut denied = Vec::new();
        for (node, presence) in group.iter().zip(presences) {
            memory.denials.heard(node, presence);
            match presence {
                Presence::Found => drop(control.found.insert(zone(node).to_owned())),
                // Counts only current denials; a denied node whose status is unknown now contradicts nothing.
                Presence::Denied(_) => denied.extend(memory.denials.since(node).map(|since| (node, since))),
                Presence::Unknown => {}
            }
        }
        let lives = join_all(denied.iter().map(|(node, since)| self.life(node, *since))).await;
        for ((node, _), life) in denied.into_iter().zip(lives) {
            let life = life?;
            match life {
                Life::Alive => control.contradictions += 1,
                Life::Unsettled => control.unsettled += 1,
                Life::Silent => {}
            }
            if memory.denials.is_news(node, life) {
                self.contradicted(provider, node);
            }
        }
        Ok(control)
    }

    /// Reads the node's Lease live, to tell whether its kubelet is alive.
    pub(super) async fn life(&self, node: &Node, denied_at: Timestamp) -> anyhow::Result<Life> {
        let lease = self.parts.writer.get_node_lease(&node.name).await;
        let lease = lease.with_context(|| format!("Lease kube-node-lease/{} cannot be read", node.name))?;
        Ok(life(lease.as_ref(), denied_at, clock::now()))
    }

    fn contradicted(&self, provider: &Arc<dyn Provider>, node: &Node) {
        let message = format!(
            "provider {:?} denies the instance of this node, whose kubelet renews its Lease: no node of this provider is \
             deleted until it has stopped denying such nodes; if the node is not the provider's, label it {}=true",
            provider.name(),
            crate::controllers::node_scope::EXCLUDE_LABEL
        );
        tracing::warn!(node = node.name, provider = provider.name(), "denied although its kubelet is alive");
        self.recorder.record(node, EventType::Warning, "InstanceDenied", message);
    }

    /// Asks about nodes that are not ready, and sorts the answers. Returns also the taints to write.
    async fn observe(&self, nodes: Vec<Arc<Node>>) -> (Seen, Vec<(Arc<Node>, Vec<Taint>)>) {
        let verdicts = join_all(nodes.iter().map(|node| self.verdict(node))).await;
        let (mut seen, mut changes) = (Seen::default(), Vec::new());
        for (node, verdict) in nodes.into_iter().zip(verdicts) {
            match verdict {
                Some(Verdict::Keep(taints)) => changes.extend(taints.map(|taints| (node, taints))),
                Some(Verdict::Stopped(taints, observed_at)) => {
                    seen.stopped.push(Sighting { node: Arc::clone(&node), observed_at });
                    changes.extend(taints.map(|taints| (node, taints)));
                }
                Some(Verdict::Absent(observed_at)) => seen.absent.push(Sighting { node, observed_at }),
                Some(Verdict::Uncertain) => seen.uncertain += 1,
                None => {}
            }
        }
        (seen, changes)
    }

    async fn ask(&self, node: &Arc<Node>) -> Found {
        let (view, freshness) = (InstanceView::Existence, Freshness::ReadThrough);
        node_instance::ask(&self.parts.providers, &self.parts.nodes, node, view, freshness).await
    }

    /// `None` if no provider owns the node.
    async fn verdict(&self, node: &Arc<Node>) -> Option<Verdict> {
        match self.ask(node).await {
            // A node is absent only if all providers that might own it say so, and all of them are healthy.
            Found::Answer { by, answer } => {
                let all_well = by
                    .iter()
                    .all(|provider| *provider.status(Family::Instances).borrow() == ProviderStatus::Serving);
                let by_name =
                    |provider: &Arc<dyn Provider>| provider.info().is_some_and(|info| info.names_are_keys);
                let named = node.provider_id.is_some() || by.iter().all(by_name);
                let policy = self.parts.settings.lifecycle.node_shutdown_policy;
                Some(if all_well { decide(policy, node, named, &answer) } else { Verdict::Uncertain })
            }
            Found::Failed { error } => {
                tracing::debug!(node = node.name, %error, "nothing is known of the instance");
                Some(Verdict::Uncertain)
            }
            Found::Contested { .. } | Found::Undecided => Some(Verdict::Uncertain),
            Found::Nobody => None,
        }
    }

    /// The provider's answers about Ready nodes, in their order.
    async fn hear(&self, group: &[Arc<Node>], at: Timestamp) -> Vec<Presence> {
        let hear = async |node: &Arc<Node>| match self.ask(node).await {
            Found::Answer { answer, .. } => presence(&answer, at),
            Found::Failed { .. } | Found::Contested { .. } | Found::Undecided | Found::Nobody => {
                Presence::Unknown
            }
        };
        join_all(group.iter().map(hear)).await
    }
}
