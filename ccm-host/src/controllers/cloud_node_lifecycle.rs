//! Taints nodes whose instance is stopped, and deletes nodes whose instance is gone.
//!
//! In: nodes that are not ready, and what their provider reports about their instances. Out: the `shutdown` taint,
//! set and removed, what `--node-shutdown-policy` says of nodes that stay stopped, and the deletion of Nodes, past a
//! guard. [`crate::controllers::cloud_node`] writes the metadata
//! of nodes whose instance exists.
//!
//! ```text
//! every period, and when a node becomes NotReady, for each provider:
//! observe: check the nodes that are not ready ──► decide (pure) ──► act: taints
//!             │ some absent: check again, Ready nodes in the same batch
//!             ▼
//!          guard (pure) ──► Lease ──► ledger ──► act: deletions, or a condition naming the rule that blocked it
//! ```
//!
//! Each provider's nodes have their own loop, so that a provider that hangs delays only its own.

mod act;
mod control;
mod decide;
mod explain;
mod guard;
mod ledger;
mod metrics;
mod observe;
mod settings;
mod shutdown;
#[cfg(test)]
mod tests;
mod wake;

use std::sync::Arc;

use futures::{FutureExt as _, future::join_all};
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    cloud::{Family, Provider, ProviderStatus},
    controllers::{Kept, Parts, Registration},
    kube::{
        Condition,
        events::Recorder,
        keep::{Keep, KeySet},
        node::{Node, Taint},
    },
    reconcile::{Run, until_cancelled},
};
use act::{Failures, HELD_BACK};
use control::Denials;
pub use decide::is_given_up;
use decide::{Look, look};
use explain::View;
use guard::{Findings, Guard, Rule, Rules, Turn};
use ledger::Ledger;
use metrics::LifecycleMetrics;
use observe::Seen;
pub use settings::{Policy, Settings, Share};
use shutdown::Stops;
use wake::Wakes;

/// The component that Events are recorded under.
const COMPONENT: &str = "cloud-node-lifecycle-controller";

/// The controller, to the rest of the host.
pub const REGISTRATION: Registration = Registration {
    name: "cloud-node-lifecycle-controller",
    short_name: "cloud-node-lifecycle",
    alias: None,
    account: Some("node-controller"),
    by_default: true,
    admit: None,
    keep: |settings| {
        let annotations = KeySet::keys([decide::CONFIRM_DELETION]);
        Kept::of_managed_nodes(settings, &Keep { labels: KeySet::keys(decide::ZONES), annotations })
    },
    served_by: |_| Some(|provider| provider.instances),
    start,
};

fn start(parts: Parts, registry: &mut Registry) -> Option<Run> {
    let controller = Controller::new(parts, registry);
    controller.parts.views.explains(Arc::<View>::clone(&controller.view));
    Some(Box::new(|stop| controller.run(stop).boxed()))
}

#[derive(Debug)]
struct Controller {
    parts: Parts,
    recorder: Recorder,
    metrics: LifecycleMetrics,
    view: Arc<View>,
    wakes: Wakes,
}

/// The state kept for one provider's nodes from pass to pass.
#[derive(Debug)]
struct Memory {
    guard: Guard,
    denials: Denials,
    /// `None` until it was read.
    ledger: Option<Ledger>,
    failures: Failures,
    stops: Stops,
    rng: fastrand::Rng,
}

/// A provider's nodes, sorted by what to ask about them.
#[derive(Debug, Default)]
struct Parted {
    /// Ready nodes with a provider ID: the provider's answers can be checked against them.
    ready: Vec<Arc<Node>>,
    not_ready: Vec<Arc<Node>>,
    /// Ready nodes with the taints to write.
    taints: Vec<(Arc<Node>, Vec<Taint>)>,
}

impl Parted {
    fn of(nodes: &[Arc<Node>]) -> Self {
        let mut parted = Self::default();
        for node in nodes {
            match look(node) {
                Look::Ready(taints) => {
                    parted.taints.extend(taints.map(|taints| (Arc::clone(node), taints)));
                    parted.ready.extend(node.provider_id.is_some().then(|| Arc::clone(node)));
                }
                Look::NotReady => parted.not_ready.push(Arc::clone(node)),
            }
        }
        parted
    }
}

impl Controller {
    fn new(parts: Parts, registry: &mut Registry) -> Self {
        Self {
            recorder: parts.events.recorder(COMPONENT),
            metrics: LifecycleMetrics::register(registry),
            view: Arc::new(View::new(&parts)),
            wakes: wake::of(&parts.providers),
            parts,
        }
    }

    async fn run(self, cancel: CancellationToken) {
        let passes = async {
            self.parts.nodes.synced().await;
            self.follow();
            join_all(self.parts.providers.all().iter().map(|provider| self.look_after(provider))).await
        };
        until_cancelled(&cancel, passes).await;
    }

    /// Runs one pass after the other, forever.
    async fn look_after(&self, provider: &Arc<dyn Provider>) {
        let mut changes = provider.instance_changes();
        let mut memory = Memory {
            guard: Guard::new(self.rules()),
            denials: Denials::default(),
            ledger: None,
            failures: Failures::default(),
            stops: Stops::new(Guard::new(Rules {
                grace: self.parts.settings.lifecycle.node_shutdown_grace,
                ..self.rules()
            })),
            rng: fastrand::Rng::new(),
        };
        loop {
            Box::pin(self.pass(provider, &mut memory)).await;
            self.due(provider, &mut changes).await;
        }
    }

    fn rules(&self) -> Rules {
        let settings = &self.parts.settings.lifecycle;
        Rules {
            grace: settings.node_deletion_grace,
            confirmations: settings.node_deletion_confirmations,
            spacing: self.spacing(),
            max_share: settings.node_deletion_max_share.fraction(),
            window: settings.node_deletion_window,
        }
    }

    async fn pass(&self, provider: &Arc<dyn Provider>, memory: &mut Memory) {
        let mut health = provider.status(Family::Instances);
        let was_well = *health.borrow_and_update() == ProviderStatus::Serving;
        let knew_enough = self.knows_enough_for(provider);
        let nodes = self.parts.nodes_of(provider);
        let mut parted = Parted::of(&nodes);
        self.write_taints(std::mem::take(&mut parted.taints)).await;
        if !was_well || !knew_enough {
            return self.distrust(provider, memory, &distrusted(provider.as_ref(), was_well));
        }
        let Some(seen) = self.look(provider, memory, &parted, &mut health).await else {
            let why = "the provider's health changed during the checks, or a Lease could not be read";
            return self.distrust(provider, memory, why);
        };
        self.give_up(provider, memory, nodes.len(), &seen).await;
        memory.failures.only(&seen.absent_nodes());
        if !seen.absent.is_empty()
            && let Err(error) = self.recall(provider, memory).await
        {
            self.none_deleted(provider, &seen.absent_nodes(), &mut memory.failures, &error);
            return self.distrust(provider, memory, &format!("{error:#}"));
        }
        self.conclude(provider, memory, &nodes, &seen).await;
    }

    /// Deletes what the guard allows, and shows what is held back.
    async fn conclude(
        &self,
        provider: &Arc<dyn Provider>,
        memory: &mut Memory,
        nodes: &[Arc<Node>],
        seen: &Seen,
    ) {
        let findings = Findings {
            total: nodes.len(),
            absent: seen.evidence(clock::now()),
            uncertain: seen.uncertain,
            control: seen.control.clone(),
            held_before: nodes.iter().filter_map(|node| Rule::of_reason(&held_back(node)?.reason)).collect(),
        };
        let mut ruling = memory.guard.rule(Instant::now(), &findings);
        report(provider.name(), &ruling.turns, &findings);
        let to_go =
            seen.absent_nodes().into_iter().filter(|node| ruling.delete.contains(&node.uid)).collect();
        let to_go = self.only_silent(provider, memory, to_go, &mut ruling.held_back).await;
        let to_go = self.record(provider, memory, to_go).await;
        self.delete_all(provider, to_go, &mut memory.failures).await;

        self.metrics.passed(provider.name(), &memory.guard, findings.absent.len(), &ruling.held_back);
        self.note_pass(provider, memory, seen, &findings, &ruling.held_back);
        let held = |node: &Arc<Node>| {
            let rule = *ruling.held_back.get(&node.uid).filter(|rule| !rule.is_brief())?;
            Some((Arc::clone(node), rule))
        };
        let is_absent = |node: &Node| findings.absent.iter().any(|evidence| evidence.uid == node.uid);
        let freed = nodes.iter().filter(|node| is_held_back(node) && !is_absent(node));
        self.show_held_back(nodes.iter().filter_map(held).collect()).await;
        self.show_freed(freed.cloned().collect()).await;
    }

    /// Whether the Node cache keeps everything that the provider wants to know. A provider that identifies instances
    /// by a label it has only just asked for may report that a node without it has none (N5).
    fn knows_enough_for(&self, provider: &Arc<dyn Provider>) -> bool {
        provider.info().is_some_and(|info| self.parts.nodes.holds(&info.keep_of_nodes))
    }
}

/// Why a provider is not asked about nodes that are not ready.
fn distrusted(provider: &dyn Provider, was_well: bool) -> String {
    let name = provider.name();
    match &*provider.status(Family::Instances).borrow() {
        ProviderStatus::Disconnected(why) => format!("provider {name:?} cannot be asked: {why}"),
        ProviderStatus::Frozen(why) => format!("provider {name:?} is frozen: {why}"),
        ProviderStatus::Serving if was_well => {
            format!("the node fields that provider {name:?} wants are not cached yet")
        }
        ProviderStatus::Serving => format!("provider {name:?} was not well when the pass began"),
    }
}

/// Whether the deletion guard holds back the deletion of the node: its provider denies its instance.
#[must_use]
pub fn is_held_back(node: &Node) -> bool {
    held_back(node).is_some()
}

/// The condition that shows it, and by its reason the rule.
fn held_back(node: &Node) -> Option<&Condition> {
    node.condition(HELD_BACK).filter(|condition| condition.status == "True")
}

fn report(provider: &str, turns: &[Turn], findings: &Findings) {
    let (absent, total) = (findings.absent.len(), findings.total);
    for turn in turns {
        match turn {
            Turn::Latched => tracing::error!(
                provider,
                absent,
                total,
                "too many instances are absent and no node is Ready: no node is deleted until one is, the answers recover, \
                 or a person confirms"
            ),
            Turn::Released => tracing::info!(provider, absent, total, "nodes may be deleted again"),
            Turn::Contradicted => tracing::error!(
                provider,
                absent,
                total,
                "the provider denies instances whose kubelets are alive: no node is deleted until it stops"
            ),
            Turn::Settled => {
                tracing::info!(provider, absent, total, "the provider does not contradict itself any more");
            }
        }
    }
}
