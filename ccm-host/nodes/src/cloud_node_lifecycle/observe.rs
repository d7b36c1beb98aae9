//! Asks about all nodes that are not ready, and about some that are.
//!
//! In: the nodes. Out: those that are absent, confirmed by as many checks as required, and what was said about Ready
//! nodes in these checks. Always read from the cloud itself, since a deletion may follow; all questions of one check
//! are asked at once. If the first check finds no node absent, it is the only one, and asks about Ready nodes only to see
//! whether a contradiction has ended.

use std::{collections::HashSet, sync::Arc, time::Duration};

use anyhow::Context as _;
use futures::future::join_all;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    Controller, DomainMemory, Flock,
    act::each,
    decide::{Evidence, Presence, Verdict, decide, is_given_up, is_vouched_for, presence, zone},
    witnesses::{Control, Life, by_zone, sample},
};
use ccm_base::clock;
use ccm_cloud::{Family, Freshness, InstanceView, Provider, ProviderStatus};
use ccm_kube::{
    events::EventType,
    node::{Node, Taint},
    patch::NodeLease,
};
use ccm_reconcile::{
    node_instance::{self, Found},
    settings::lifecycle::ShutdownPolicy,
};

/// Time between two checks of the same nodes. It gives a cloud that answers from several replicas time to contradict
/// itself, and adds to the delay before a node is deleted.
const SECOND_LOOK: Duration = Duration::from_millis(300);

/// What was seen: in one check, and at last in all checks of a pass.
#[derive(Debug, Default)]
pub(super) struct SeenNodes {
    /// Nodes without an instance.
    pub(super) absent: Vec<Evidence>,
    /// Nodes whose instance is stopped.
    pub(super) stopped: Vec<Evidence>,
    /// Nodes without a provider ID, of whose name there is no instance.
    pub(super) nameless: Vec<Arc<Node>>,
    /// Nodes about which nothing certain is known.
    pub(super) uncertain: Vec<Arc<Node>>,
    pub(super) control: Control,
    taints: Vec<(Arc<Node>, Vec<Taint>)>,
    /// The answers about Ready nodes.
    presences: Vec<(Arc<Node>, Presence)>,
}

impl SeenNodes {
    pub(super) fn absent_nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.absent.iter().map(|absent| &absent.node)
    }
}

impl Controller {
    /// Minimum time between answers that confirm each other.
    pub(super) fn spacing(&self) -> Duration {
        SECOND_LOOK.min(self.parts.settings.lifecycle.node_monitor_period)
    }

    /// Repeats the check as often as required. `None` if a provider was unhealthy at some point, the cache lacked
    /// something that it wants to know, or a Lease could not be read.
    pub(super) async fn look(
        &self,
        memory: &mut DomainMemory<'_>,
        flock: &Flock,
        health: &mut [watch::Receiver<ProviderStatus>],
    ) -> Option<SeenNodes> {
        let mut seen = SeenNodes::default();
        let mut asked = flock.not_ready.clone();
        memory.denials.only(&flock.ready);
        seen.control.ready = flock.ready.len();
        seen.control.ready_in = by_zone(&flock.ready);
        let zones: HashSet<&str> = flock.not_ready.iter().map(|node| zone(node)).collect();
        for turn in 0..self.parts.settings.lifecycle.node_deletion_confirmations.max(2) {
            if turn > 0 {
                sleep(self.spacing()).await;
            }
            let is_suspect = |node: &Arc<Node>| {
                memory.guard.first_denied(&node.uid).is_some() || memory.stops.is_suspect(&node.uid)
            };
            // A contradiction ends by what is said of Ready nodes, whoever else is to go.
            let with_control = memory.guard.is_contradicted() || asked.iter().any(is_suspect);
            let group = with_control.then(|| sample(&flock.ready, &zones, &memory.denials, &mut memory.rng));
            let observed = self.check(&asked, group.unwrap_or_default()).await;
            let was_well = !health.iter().any(|health| health.has_changed().unwrap_or(true));
            if !was_well || !flock.providers.iter().all(|provider| self.knows_enough_for(provider)) {
                return None;
            }
            self.write_taints(observed.taints).await;
            seen.uncertain.extend(observed.uncertain);
            seen.absent = observed.absent;
            // Only the first check asks about all nodes.
            seen.stopped.extend(observed.stopped);
            seen.nameless.extend(observed.nameless);
            memory.guard.confirm(Instant::now(), &seen.absent);
            match self.weigh(memory, observed.presences).await {
                Ok(control) => {
                    seen.control.then(control);
                    seen.control.stale = memory.denials.stale(&flock.ready);
                }
                Err(error) => {
                    self.none_deleted(memory.domain, seen.absent_nodes(), &mut memory.failures, &error);
                    return None;
                }
            }
            if !memory.guard.wants_another_look(with_control) {
                break;
            }
            asked = seen.absent_nodes().cloned().collect();
        }
        Some(seen)
    }

    /// Weighs the answers about Ready nodes for and against the provider. Reads the Leases of the nodes that it
    /// denies.
    async fn weigh(
        &self,
        memory: &mut DomainMemory<'_>,
        presences: Vec<(Arc<Node>, Presence)>,
    ) -> anyhow::Result<Control> {
        let mut control = Control { asked: !presences.is_empty(), ..Control::default() };
        let (mut denied, now) = (Vec::new(), Instant::now());
        for (node, presence) in presences {
            if presence == Presence::Found {
                *control.found.entry(zone(&node).to_owned()).or_default() += 1;
            }
            let heard = memory.denials.heard(now, &node, presence);
            denied.extend(heard.map(|heard| (node, heard)));
        }
        let read = self.leases(denied, |(node, _)| node).await;
        let now = Instant::now();
        for ((node, (since, is_stale)), lease) in read {
            let duration = memory.leases.heard(now, &node.uid, lease?.as_ref());
            if is_stale {
                continue;
            }
            control.settle = control.settle.max(duration);
            let life = memory.leases.life(now, &node.uid, since, false);
            let counts = match life {
                Life::Alive => &mut control.alive,
                Life::Unsettled => &mut control.unsettled,
                Life::Silent => continue,
            };
            *counts.entry(zone(&node).to_owned()).or_default() += 1;
            if life == Life::Alive && memory.denials.is_news(&node) {
                self.contradicted(&node);
            }
        }
        Ok(control)
    }

    /// Reads nodes' Leases live.
    pub(super) async fn leases<T>(
        &self,
        of: Vec<T>,
        node: impl Fn(&T) -> &Arc<Node>,
    ) -> Vec<(T, anyhow::Result<Option<NodeLease>>)> {
        let read = async |one: T| {
            let name = &node(&one).name;
            let lease = self.parts.writer.get_node_lease(name).await;
            let lease = lease.with_context(|| format!("Lease kube-node-lease/{name} cannot be read"));
            (one, lease)
        };
        each(of, read).await
    }

    fn contradicted(&self, node: &Node) {
        let message = format!(
            "the provider denies the instance of this node, whose kubelet renews its Lease: while it denies such nodes, no \
             node is deleted in their zones, or at all if they are more than a tenth; if the node is not the provider's, \
             label it {}=true",
            ccm_reconcile::settings::EXCLUDE_LABEL
        );
        tracing::warn!(node = node.name, "denied although its kubelet is alive");
        self.recorder.record(node, EventType::Warning, "InstanceDenied", message);
    }

    /// Asks about nodes that are not ready, and about the control group; sorts the answers. Ready nodes are spread
    /// among the others, so that each call to the provider has some, as far as they suffice.
    async fn check(&self, nodes: &[Arc<Node>], group: Vec<Arc<Node>>) -> SeenNodes {
        let every = nodes.len().div_ceil(group.len().max(1)).max(1);
        let (mut group, mut questions) = (group.into_iter(), Vec::new());
        for (index, node) in nodes.iter().enumerate() {
            if index.is_multiple_of(every) {
                questions.extend(group.next().map(|node| (node, true)));
            }
            questions.push((Arc::clone(node), false));
        }
        questions.extend(group.map(|node| (node, true)));
        let answers = join_all(questions.iter().map(|(node, _)| self.ask(node))).await;
        let mut seen = SeenNodes::default();
        for ((node, is_ready), found) in questions.into_iter().zip(answers) {
            if is_ready {
                let presence = match found {
                    Found::Answer { answer, .. } => presence(&answer),
                    _ => Presence::Unknown,
                };
                seen.presences.push((node, presence));
                continue;
            }
            match verdict(self.parts.settings.lifecycle.node_shutdown_policy, &node, found) {
                Some(Verdict::Keep(taints)) => seen.taints.extend(taints.map(|taints| (node, taints))),
                Some(Verdict::Stopped(taints, observed_at)) => {
                    seen.taints.extend(taints.map(|taints| (Arc::clone(&node), taints)));
                    let age = Duration::ZERO;
                    seen.stopped.push(Evidence { node, age, vouched: false, given_up: false, observed_at });
                }
                Some(Verdict::Absent(observed_at)) => {
                    let (vouched, given_up) = (is_vouched_for(&node), is_given_up(&node));
                    let age = self.age(&node);
                    seen.absent.push(Evidence { node, age, vouched, given_up, observed_at });
                }
                // A young one is not in the cloud's list yet.
                Some(Verdict::Nameless)
                    if self.age(&node) >= self.parts.settings.lifecycle.node_deletion_grace =>
                {
                    seen.nameless.push(node);
                }
                Some(Verdict::Nameless | Verdict::Uncertain) => seen.uncertain.push(node),
                None => {}
            }
        }
        seen
    }

    async fn ask(&self, node: &Arc<Node>) -> Found {
        let (view, freshness) = (InstanceView::Existence, Freshness::ReadThrough);
        node_instance::ask(&self.parts.providers, &self.parts.nodes, node, view, freshness).await
    }

    /// The node's age: by its date, but no more than since this process saw it join. A node without a date, or with
    /// one in the future, counts as brand new.
    fn age(&self, node: &Node) -> Duration {
        let by_date = node.created.map_or(Duration::ZERO, |created| clock::between(created, clock::now()));
        let seen = self.joined.lock().get(&node.uid).map(Instant::elapsed);
        seen.map_or(by_date, |seen| seen.min(by_date))
    }
}

/// `None` if no provider owns the node. It is absent only if all providers that might own it say so, and all of them
/// are healthy.
fn verdict(policy: ShutdownPolicy, node: &Node, found: Found) -> Option<Verdict> {
    match found {
        Found::Answer { by, answer } => {
            let all_well = by
                .iter()
                .all(|provider| *provider.status(Family::Instances).borrow() == ProviderStatus::Serving);
            let by_name =
                |provider: &Arc<dyn Provider>| provider.info().is_some_and(|info| info.names_are_keys);
            let named = node.provider_id.is_some() || by.iter().all(by_name) || is_vouched_for(node);
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
