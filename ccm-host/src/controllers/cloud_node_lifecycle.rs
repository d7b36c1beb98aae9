//! Looks after nodes whose machine is stopped or gone.
//!
//! In: nodes that are not ready, and what their provider says of their machines. Out: the `shutdown` taint in both
//! directions, and the deletion of Nodes, past a guard. How a node that is there is described is
//! decided in [`crate::controllers::cloud_node`].
//!
//! ```text
//! every period, for each provider:
//! look ──► observe: one batch ──► decide (pure) ──┬─► act: taints
//!                                                 └─► guard (pure) ──► ledger ──► act: deletions, or a condition that
//!                                                                                  says why not
//! ```
//!
//! Each provider's nodes are passed over on their own, so that a provider that hangs holds up only its own.

mod act;
mod decide;
mod guard;
mod ledger;
mod metrics;
mod observe;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::future::join_all;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    cloud::{NodeOwner, Provider, ProviderStatus, Providers},
    controllers::node_scope::NodeScope,
    kube::{
        cache::Cache,
        events::Recorder,
        keep::{Keep, KeySet},
        node::Node,
        patch::Writer,
    },
    manager::{flags::LifecycleSettings, selector::LabelSelector},
};
use act::{Failures, HELD_BACK};
use decide::{Look, look};
use guard::{Findings, Guard, Rules, Turn};
use ledger::Ledger;
pub use metrics::LifecycleMetrics;
use metrics::PassCount;

/// The name under which its events are recorded.
pub const COMPONENT: &str = "cloud-node-lifecycle-controller";

/// What the controller works with.
#[derive(Debug, Clone)]
pub struct Context {
    /// All nodes; it has to keep what [`keep`] says.
    pub nodes: Cache<Node>,
    /// How nodes are written and deleted.
    pub writer: Writer,
    /// Who can be asked.
    pub providers: Providers,
    /// Of [`COMPONENT`].
    pub recorder: Recorder,
    /// This controller's.
    pub metrics: LifecycleMetrics,
    /// From the command line.
    pub settings: LifecycleSettings,
    /// The nodes that are ours.
    pub selector: LabelSelector,
}

/// What the Node cache has to keep for this controller.
#[must_use]
pub fn keep(selector: &LabelSelector) -> Keep {
    let own = Keep { labels: KeySet::default(), annotations: KeySet::keys([decide::CONFIRM_DELETION]) };
    own.union(&NodeScope::new(selector.clone()).keep())
}

/// The controller.
#[derive(Debug)]
pub struct Controller {
    scope: NodeScope,
    context: Context,
}

/// What is remembered of one provider's nodes from pass to pass.
#[derive(Debug)]
struct Memory {
    guard: Guard,
    ledger: Ledger,
    failures: Failures,
}

impl Controller {
    /// A controller that does nothing until it runs.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self { scope: NodeScope::new(context.selector.clone()), context }
    }

    /// Runs until cancelled; what is being asked or written then is given up.
    pub async fn run(self, cancel: CancellationToken) -> anyhow::Result<()> {
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            () = self.context.nodes.synced() => {}
        }
        let each = self.context.providers.all().iter().map(|provider| self.look_after(provider, &cancel));
        let all = join_all(each);
        tokio::select! {
            () = cancel.cancelled() => {}
            _ = all => {}
        }
        Ok(())
    }

    /// One pass after the other, a period apart, without end.
    async fn look_after(&self, provider: &Arc<dyn Provider>, cancel: &CancellationToken) {
        let mut memory = Memory {
            guard: Guard::new(self.rules()),
            ledger: Ledger::default(),
            failures: Failures::default(),
        };
        loop {
            Box::pin(self.pass(provider, &mut memory, cancel)).await;
            sleep(self.context.settings.monitor_period).await;
        }
    }

    fn rules(&self) -> Rules {
        let settings = &self.context.settings;
        Rules {
            grace: settings.deletion_grace,
            confirmations: settings.deletion_confirmations,
            spacing: settings.monitor_period,
            max_share: settings.deletion_max_share.fraction(),
            window: settings.deletion_window,
        }
    }

    async fn pass(&self, provider: &Arc<dyn Provider>, memory: &mut Memory, cancel: &CancellationToken) {
        let mut health = provider.status();
        let was_well = *health.borrow_and_update() == ProviderStatus::Serving;
        let nodes = self.nodes_of(provider);
        let (mut ready, mut not_ready) = (Vec::new(), Vec::new());
        for node in &nodes {
            match look(node) {
                Look::Ready(taints) => ready.extend(taints.map(|taints| (Arc::clone(node), taints))),
                Look::NotReady => not_ready.push(Arc::clone(node)),
            }
        }
        self.write_taints(ready, cancel).await;
        if !was_well {
            return memory.guard.distrust();
        }
        let observed = self.observe(not_ready).await;
        if health.has_changed().unwrap_or(true) {
            // It was not well for some of the time, perhaps for the answer that would count.
            return memory.guard.distrust();
        }
        let findings = Findings {
            total: nodes.len(),
            absent: observed.evidence(crate::clock::now()),
            uncertain: observed.uncertain,
            held_back_before: nodes.iter().any(|node| is_held_back(node)),
        };
        self.write_taints(observed.taints, cancel).await;
        memory.failures.only(&observed.absent);
        if !observed.absent.is_empty()
            && let Err(error) = self.recall(provider, memory).await
        {
            self.none_deleted(provider, &observed.absent, &mut memory.failures, &error);
            return memory.guard.distrust();
        }
        let ruling = memory.guard.rule(Instant::now(), &findings);
        let latched = memory.guard.is_latched();
        self.report(provider.name(), ruling.turned, &findings);
        let count = PassCount { latched, held_back: ruling.held_back.len(), absent: findings.absent.len() };
        self.context.metrics.passed(provider.name(), count);
        let to_go = observed.absent.iter().filter(|node| ruling.delete.contains(&node.uid));
        let to_go = self.record(provider, memory, to_go.cloned().collect(), cancel).await;
        self.delete_all(provider, to_go, &mut memory.failures, cancel).await;
        let is_absent = |node: &Node| findings.absent.iter().any(|evidence| evidence.uid == node.uid);
        let to_hold = nodes.iter().filter(|node| ruling.held_back.contains(&node.uid));
        let to_let_go = nodes.iter().filter(|node| is_held_back(node) && !(latched && is_absent(node)));
        self.show_held_back(to_hold.cloned().collect(), true, cancel).await;
        self.show_held_back(to_let_go.cloned().collect(), false, cancel).await;
    }

    fn report(&self, provider: &str, turned: Option<Turn>, findings: &Findings) {
        let (absent, total) = (findings.absent.len(), findings.total);
        match turned {
            Some(Turn::Latched) => tracing::error!(
                provider,
                absent,
                total,
                "too many instances are absent: no node is deleted until the answers recover or a person confirms"
            ),
            Some(Turn::Released) => tracing::info!(provider, absent, total, "nodes may be deleted again"),
            None => {}
        }
    }

    /// Nodes that may be several providers' are counted to the first of them.
    fn nodes_of(&self, provider: &Arc<dyn Provider>) -> Vec<Arc<Node>> {
        let is_its = |node: &Arc<Node>| match self.context.providers.for_node(node) {
            NodeOwner::Provider(owner) => owner.name() == provider.name(),
            NodeOwner::Candidates(all) => all.first().is_some_and(|first| first.name() == provider.name()),
            NodeOwner::Undecided | NodeOwner::Nobody => false,
        };
        let nodes = self.context.nodes.list().into_iter();
        nodes.filter(|node| self.is_ours(node)).filter(is_its).collect()
    }

    fn is_ours(&self, node: &Node) -> bool {
        !node.deleting && self.scope.contains(node)
    }
}

fn is_held_back(node: &Node) -> bool {
    node.condition(HELD_BACK).is_some_and(|condition| condition.status == "True")
}
