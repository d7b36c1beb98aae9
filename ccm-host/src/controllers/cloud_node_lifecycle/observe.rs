//! Asks about all nodes that are not ready, at once.
//!
//! In: the nodes. Out: what is to be done about their taints, which of them are absent, and of how many nothing is known.
//! Always read from the cloud itself: what follows may be a deletion, and all questions share calls.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use jiff::Timestamp;

use super::{
    Controller,
    decide::{Verdict, decide, is_vouched_for},
    guard::Evidence,
};
use crate::{
    cloud::{Freshness, InstanceView, ProviderStatus},
    controllers::node_instance::{self, Found},
    kube::node::{Node, Taint},
};

/// What came of asking.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// The taints that nodes shall have.
    pub(super) taints: Vec<(Arc<Node>, Vec<Taint>)>,
    /// Nodes without a machine.
    pub(super) absent: Vec<Arc<Node>>,
    /// How many nodes nothing certain is known of.
    pub(super) uncertain: usize,
}

impl Observed {
    /// The absent nodes as the guard wants to see them.
    pub(super) fn evidence(&self, now: Timestamp) -> Vec<Evidence> {
        // A node without a time of creation, or from the future, is as young as can be.
        let age = |node: &Node| {
            node.created.and_then(|created| Duration::try_from(now.duration_since(created)).ok())
        };
        let evidence = |node: &Arc<Node>| Evidence {
            uid: node.uid.clone(),
            age: age(node).unwrap_or_default(),
            vouched: is_vouched_for(node),
        };
        self.absent.iter().map(evidence).collect()
    }
}

impl Controller {
    /// Asks and sorts the answers.
    pub(super) async fn observe(&self, nodes: Vec<Arc<Node>>) -> Observed {
        let verdicts = join_all(nodes.iter().map(|node| self.verdict(node))).await;
        let mut observed = Observed::default();
        for (node, verdict) in nodes.into_iter().zip(verdicts) {
            match verdict {
                Some(Verdict::Keep(taints)) => observed.taints.extend(taints.map(|taints| (node, taints))),
                Some(Verdict::Absent) => observed.absent.push(node),
                Some(Verdict::Uncertain) => observed.uncertain += 1,
                None => {}
            }
        }
        observed
    }

    /// None if the node is nobody's.
    async fn verdict(&self, node: &Arc<Node>) -> Option<Verdict> {
        let providers = &self.context.providers;
        let found =
            node_instance::ask(providers, node, InstanceView::Existence, Freshness::ReadThrough).await;
        match found {
            // Absent is a node only if all who might have it say so, and all of them are well.
            Found::Answer { by, answer } => {
                let all_well =
                    by.iter().all(|provider| *provider.status().borrow() == ProviderStatus::Serving);
                Some(if all_well { decide(node, &answer) } else { Verdict::Uncertain })
            }
            Found::Failed { error } => {
                tracing::debug!(node = node.name, %error, "nothing is known of the instance");
                Some(Verdict::Uncertain)
            }
            Found::Undecided => Some(Verdict::Uncertain),
            Found::Nobody => None,
        }
    }
}
