//! Asks the provider about one node.
//!
//! In: the node, and how fresh the answer must be. Out: an answer to decide on, or the outcome without one.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Controller, decide::Obstacle, is_new};
use crate::{
    cloud::{Freshness, InstanceAnswer, InstanceView, Provider},
    controllers::node_instance::{self, Found},
    kube::{node::Node, queue::Outcome},
    reconcile::passes_by_itself,
};

/// How long to wait for a provider that has not introduced itself; its introduction requeues the node earlier.
const INTRODUCTION: Duration = Duration::from_secs(10);

/// The result of asking.
#[derive(Debug)]
pub(super) enum Observed {
    Answer(Box<InstanceAnswer>),
    Nothing(Outcome),
}

impl Controller {
    /// Asks the provider that owns the node, or those that might.
    pub(super) async fn observe(&self, node: &Arc<Node>, freshness: Freshness) -> Observed {
        let (providers, nodes) = (&self.parts.providers, &self.parts.nodes);
        let asked = node_instance::ask(providers, nodes, node, InstanceView::Metadata, freshness);
        Observed::Nothing(match asked.await {
            Found::Answer { by, answer } => {
                let is_news = self.attention.lock().answered(&node.name, &answer, Instant::now());
                // Watch reports are read through; a change found by a sweep was missed by the watch.
                if is_news && matches!(freshness, Freshness::AtMost(_)) {
                    self.count_missed(&by);
                }
                return Observed::Answer(answer);
            }
            Found::Failed { error } => {
                let expected = passes_by_itself(&error, self.queue.failing_for(&node.name));
                self.not_yet(node, &Obstacle { expected, ..Obstacle::of_error(&error) })
            }
            Found::Contested { by } => self.not_yet(node, &Obstacle::contested(&by)),
            Found::Undecided if is_new(node) => Outcome::RetryAfter(INTRODUCTION),
            Found::Undecided | Found::Nobody => Outcome::Done,
        })
    }

    fn count_missed(&self, by: &[Arc<dyn Provider>]) {
        let watched =
            |provider: &&Arc<dyn Provider>| provider.info().is_some_and(|info| info.watch_instances);
        for provider in by.iter().filter(watched) {
            self.parts.cloud_metrics.watch_missed(provider.name());
        }
    }
}
