//! Writes pod CIDRs, once, to a node that has none.
//!
//! In: the CIDRs. Out: one patch that tests that there are none yet, and a live read whenever its outcome is unknown.
//! A proposal stays reserved for the node until it is certain that it was not written.

use std::sync::Arc;

use ipnet::IpNet;
use parking_lot::Mutex;

use super::{
    Controller,
    ledger::{Allotment, Ledger},
    problem,
};
use ccm_kube::{
    node::Node,
    patch::{WriteError, node_pod_cidrs},
    queue::Outcome,
};
use ccm_reconcile::{Report, unwritten};

/// What there is to report of the node, or the outcome where that stays as it is.
type Ended = Result<Vec<Report>, Outcome>;

impl Controller {
    /// Writes what the source has for the node.
    pub(super) async fn settle(&self, node: &Arc<Node>) -> Ended {
        let cidrs = match &self.ledger {
            Some(ledger) => match self.allot(ledger, node) {
                Allotment::Cidrs(cidrs) => cidrs,
                Allotment::Exhausted(cluster, widest) => {
                    return Ok(vec![problem::exhausted(&cluster, widest.as_ref())]);
                }
                Allotment::Contested | Allotment::Nothing => return Ok(Vec::new()),
            },
            None => match self.ask(node).await {
                Ok(cidrs) => cidrs,
                Err(report) => return Ok(vec![report]),
            },
        };
        self.write(node, &cidrs).await
    }

    fn allot(&self, ledger: &Mutex<Ledger>, node: &Node) -> Allotment {
        let allotment = ledger.lock().allot(&node.uid);
        if allotment != Allotment::Contested {
            return allotment;
        }
        self.change(|ledger| ledger.give_back(&node.uid));
        ledger.lock().allot(&node.uid)
    }

    async fn write(&self, node: &Node, cidrs: &[IpNet]) -> Ended {
        let texts: Vec<_> = cidrs.iter().map(ToString::to_string).collect();
        let Some(patch) = node_pod_cidrs(node, &texts) else { return Ok(Vec::new()) };
        let Err(error) = self.shell.patch::<Node>(&node.name, &patch).await else {
            tracing::info!(node = node.name, cidrs = texts.join(","), "pod CIDRs assigned");
            return Ok(Vec::new());
        };
        match error {
            // The node may have podCIDRs by now, ours or others.
            WriteError::Conflict | WriteError::Other(_) => self.look_again(node, &texts, error).await,
            // Certainly nothing was written, nor will be.
            WriteError::Invalid(_) => {
                self.change(|ledger| ledger.give_back(&node.uid));
                Ok(vec![problem::not_written(&texts, error)])
            }
            // If it is held back, the proposal stays, to be made again.
            error => Err(unwritten(error)),
        }
    }

    /// Resolves a write of unknown outcome by a live read.
    async fn look_again(&self, node: &Node, texts: &[String], error: WriteError) -> Ended {
        let parts = &self.shell.parts;
        let live = match parts.writer.get::<Node>(&node.name, &parts.nodes.keep()).await {
            Ok(live) => live,
            Err(unread) => return Ok(vec![problem::not_written(texts, unread)]),
        };
        // If it is gone, another one may have its name.
        match live.filter(|live| live.uid == node.uid) {
            Some(live) if live.pod_cidrs.is_empty() => Ok(vec![problem::not_written(texts, error)]),
            Some(live) => {
                self.change(|ledger| ledger.learn(&live));
                Ok(Vec::new())
            }
            None => Ok(Vec::new()),
        }
    }
}
