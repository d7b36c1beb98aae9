//! Writes pod CIDRs, once, to a node that has none.
//!
//! In: the CIDRs. Out: one patch that tests that there are none yet, and a live read whenever its outcome is unknown.
//! A proposal stays reserved for the node until it is certain that it was not written.

use std::sync::Arc;

use ipnet::IpNet;
use parking_lot::Mutex;

use super::{
    Controller, Source,
    decide::Verdict,
    ledger::{Allotment, Ledger},
    problem::Problem,
};
use crate::{
    kube::{
        node::Node,
        patch::{WriteError, node_pod_cidrs},
        queue::Outcome,
    },
    reconcile::SLOW_RETRY,
};

impl Controller {
    /// Writes what the source has for the node.
    pub(super) async fn settle(&self, node: &Arc<Node>) -> Outcome {
        let cidrs = match &self.source {
            Source::Ranges(ledger) => match self.allot(ledger, node) {
                Some(cidrs) => cidrs,
                None => return Outcome::Done,
            },
            Source::Cloud { cluster } => match self.ask(node, cluster).await {
                Ok(Verdict::Assign(cidrs)) => cidrs,
                Ok(Verdict::NotYet { problem, again }) => {
                    self.tell_missing(node, problem);
                    return again;
                }
                // A provider with the wrong project is put right some day.
                Ok(Verdict::NotOurs) => return Outcome::Slow(SLOW_RETRY),
                Err(outcome) => return outcome,
            },
        };
        self.write(node, &cidrs).await
    }

    /// `None` if there is nothing to write: the node has pod CIDRs already, is gone, or waits for a free block.
    fn allot(&self, ledger: &Mutex<Ledger>, node: &Node) -> Option<Vec<IpNet>> {
        let mut allotment = ledger.lock().allot(&node.uid);
        if allotment == Allotment::Contested {
            self.change(|ledger| ledger.give_back(&node.uid));
            allotment = ledger.lock().allot(&node.uid);
        }
        match allotment {
            Allotment::Cidrs(cidrs) => Some(cidrs),
            Allotment::Exhausted(cluster) => {
                self.tell_missing(node, Problem::Exhausted(cluster));
                None
            }
            Allotment::Contested | Allotment::Nothing => None,
        }
    }

    async fn write(&self, node: &Arc<Node>, cidrs: &[IpNet]) -> Outcome {
        let texts: Vec<_> = cidrs.iter().map(ToString::to_string).collect();
        let Some(patch) = node_pod_cidrs(node, &texts) else { return Outcome::Done };
        let Ok(_permit) = self.writing.acquire().await else { return Outcome::Done };
        let Err(error) = self.parts.writer.patch::<Node>(&node.name, &patch).await else {
            tracing::info!(node = node.name, cidrs = texts.join(","), "pod CIDRs assigned");
            return Outcome::Done;
        };
        match error {
            WriteError::NotFound | WriteError::Gone | WriteError::NotLeading => Outcome::Done,
            // The proposal stays, to be made again.
            WriteError::HeldBack(again) => Outcome::RetryAfter(again),
            // The node may have podCIDRs by now, ours or others.
            WriteError::Conflict | WriteError::Other(_) => self.look_again(node, &texts, error).await,
            // Certainly nothing was written, nor will be.
            WriteError::Invalid(_) => {
                self.change(|ledger| ledger.give_back(&node.uid));
                self.not_written(node, &texts, error)
            }
        }
    }

    /// Resolves a write of unknown outcome by a live read.
    async fn look_again(&self, node: &Arc<Node>, texts: &[String], error: WriteError) -> Outcome {
        let kept = self.parts.nodes.keep();
        let live = match self.parts.writer.get::<Node>(&node.name, &kept).await {
            Ok(live) => live,
            Err(unread) => return self.not_written(node, texts, unread),
        };
        match live.filter(|live| live.uid == node.uid) {
            Some(live) if live.pod_cidrs.is_empty() => self.not_written(node, texts, error),
            Some(live) => {
                self.learn(&live);
                Outcome::Done
            }
            // It is gone, or another one has its name.
            None => Outcome::Done,
        }
    }

    fn not_written(&self, node: &Node, texts: &[String], error: WriteError) -> Outcome {
        let error = anyhow::Error::from(error);
        let problem = Problem::NotWritten { networks: texts.join(","), error: format!("{error:#}") };
        self.tell_missing(node, problem);
        Outcome::retry(error)
    }
}
