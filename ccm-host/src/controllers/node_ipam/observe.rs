//! Keeps the ledger in step with the Node cache, and asks providers for what the cloud allots.
//!
//! In: every change of a Node, answers. Out: a ledger that knows every node's blocks, keys in the queue, Events about
//! problems. All nodes count, even those that we may not write: their blocks are occupied.

use std::{sync::Arc, time::Duration};

use ipnet::IpNet;

use super::{
    Controller, Source,
    decide::{Verdict, concerns, of_answer, of_error},
    ledger::{Effects, Ledger, Report},
    problem::Problem,
};
use crate::{
    cloud::{Freshness, InstanceView},
    controllers::node_instance::{self, Found},
    kube::{
        cache::Change,
        events::{EventType, Regarding},
        node::Node,
        queue::Outcome,
    },
    reconcile::{Retry, SLOW_RETRY, passes_by_itself},
};

/// How long to wait for a provider that has not introduced itself.
const INTRODUCTION: Duration = Duration::from_secs(10);

impl Controller {
    pub(super) fn node_changed(&self, change: &Change<Node>) {
        match change {
            Change::Deleted(node) => {
                self.problems.lock().news(&node.uid, Vec::new());
                self.change(|ledger| ledger.forget(&node.uid));
            }
            Change::Added(node) | Change::Updated { new: node, .. } => match &self.source {
                Source::Ranges(_) => self.change(|ledger| ledger.see(node)),
                Source::Cloud { .. } => self.learn(node),
            },
        }
        if concerns(change) {
            self.queue.add(change.object().name.clone());
        }
    }

    /// Records a node from a source that may be ahead of the cache.
    pub(super) fn learn(&self, node: &Node) {
        match &self.source {
            Source::Ranges(_) => self.change(|ledger| ledger.learn(node)),
            Source::Cloud { .. } if !node.pod_cidrs.is_empty() => {
                self.tell(node.into(), Vec::new(), |_| true);
            }
            Source::Cloud { .. } => {}
        }
    }

    /// Changes the ledger, if there is one, and applies the effects, all under the ledger's lock, so that reports
    /// come in the order of the changes.
    pub(super) fn change(&self, change: impl FnOnce(&mut Ledger) -> Effects) {
        let Source::Ranges(ledger) = &self.source else { return };
        let mut ledger = ledger.lock();
        let Effects { wake, reports } = change(&mut ledger);
        wake.into_iter().for_each(|name| self.queue.add(name));
        for Report { uid, name, problems } in reports {
            self.tell(Regarding::node(&name, &uid), problems, |_| true);
        }
    }

    /// Reports why a node has no pod CIDRs, unless it has some by now.
    pub(super) fn tell_missing(&self, node: &Node, problem: Problem) {
        self.tell(node.into(), vec![problem], |now| now.pod_cidrs.is_empty());
    }

    /// Reports those of a node's problems that are new, if they can still be current.
    fn tell(&self, node: Regarding, problems: Vec<Problem>, still: impl FnOnce(&Node) -> bool) {
        let mut told = self.problems.lock();
        // Look up under the lock: the cache is ahead of us, and a late report would never be withdrawn.
        let now = self.parts.nodes.get(&node.name).filter(|now| now.uid == node.uid);
        if !now.is_some_and(|now| still(&now)) {
            return;
        }
        for problem in told.news(&node.uid, problems) {
            let message = problem.to_string();
            tracing::warn!(node = node.name, problem = message, "pod CIDR");
            self.recorder.record(&node, EventType::Warning, problem.reason(), message);
        }
    }

    /// Asks the provider what it has allotted to the node. `Err` is the outcome without an answer.
    pub(super) async fn ask(&self, node: &Arc<Node>, cluster: &[IpNet]) -> Result<Verdict, Outcome> {
        let (providers, nodes) = (&self.parts.providers, &self.parts.nodes);
        let asked = node_instance::ask(providers, nodes, node, InstanceView::All, Freshness::ReadThrough);
        match asked.await {
            Found::Answer { by, answer } => {
                let allots = by.iter().any(|provider| provider.info().is_some_and(|info| info.pod_cidrs));
                Ok(of_answer(&answer, allots, cluster))
            }
            Found::Failed { error } if passes_by_itself(&error, self.queue.failing_for(&node.name)) => {
                Err(Retry::without_sweep(&error).outcome(&error))
            }
            Found::Failed { error } => Ok(of_error(&error)),
            Found::Contested { .. } | Found::Undecided => Err(Outcome::RetryAfter(INTRODUCTION)),
            Found::Nobody => Err(Outcome::Slow(SLOW_RETRY)),
        }
    }
}
