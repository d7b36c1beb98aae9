//! Keeps the ledger in step with the Node cache, and asks providers for what the cloud allots.
//!
//! In: every change of a Node, answers. Out: a ledger that knows every node's blocks, keys in the queue. All nodes count,
//! even those that we may not write: their blocks are occupied.

use std::{sync::Arc, time::Duration};

use ipnet::IpNet;
use tokio::time::Instant;

use super::{
    Controller,
    decide::{concerns, of_answer},
    ledger::Ledger,
    problem,
};
use ccm_cloud::{Freshness, InstanceView};
use ccm_kube::{cache::Change, node::Node};
use ccm_reconcile::{
    Report, Retry, SLOW_RETRY,
    node_instance::{self, Found},
};

/// How long to wait for a provider that has not introduced itself.
const INTRODUCTION: Duration = Duration::from_secs(10);

impl Controller {
    pub(super) fn node_changed(&self, change: &Change<Node>) {
        match change {
            Change::Deleted(node) => self.change(|ledger| ledger.forget(&node.uid)),
            Change::Added(node) | Change::Updated { new: node, .. } => {
                self.change(|ledger| ledger.see(node));
            }
        }
        if concerns(change) {
            let wait = self.paces.of_change(change, Instant::now());
            self.shell.queue.add_after(change.object().name.clone(), wait);
        }
    }

    /// Changes the ledger, if there is one, and has the nodes looked at that are affected.
    pub(super) fn change(&self, change: impl FnOnce(&mut Ledger) -> Vec<String>) {
        if let Some(ledger) = &self.ledger {
            let affected = change(&mut ledger.lock());
            affected.into_iter().for_each(|name| self.shell.queue.add(name));
        }
    }

    /// What is wrong with the pod CIDRs that a node has.
    pub(super) fn wrong(&self, node: &Node) -> Vec<Report> {
        self.ledger.as_ref().map_or_else(Vec::new, |ledger| ledger.lock().problems(&node.uid))
    }

    /// Asks the provider what it has allotted to the node.
    pub(super) async fn ask(&self, node: &Arc<Node>) -> Result<Vec<IpNet>, Report> {
        let parts = &self.shell.parts;
        let (providers, nodes) = (&parts.providers, &parts.nodes);
        let asked = node_instance::ask(providers, nodes, node, InstanceView::All, Freshness::ReadThrough);
        match asked.await {
            Found::Answer { by, answer } => {
                let allots = by.iter().any(|provider| provider.info().is_some_and(|info| info.pod_cidrs));
                of_answer(&answer, allots, &parts.settings.cidrs.cluster)
            }
            Found::Failed { error } => Err(problem::not_asked(&error)),
            Found::Contested { .. } | Found::Undecided => {
                let why = "the owner of this node is not known yet";
                Err(Report::waiting("OwnerUnknown", why, Retry::After(INTRODUCTION)))
            }
            Found::Nobody => {
                let why = "the node belongs to no provider of this host";
                Err(Report::waiting("NoProvider", why, Retry::After(SLOW_RETRY)))
            }
        }
    }
}
