//! Writes the condition of the node.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Controller, Node};
use crate::{
    controllers::node_route::{condition, subject::Again},
    kube::patch::{WantedCondition, WriteError, node_condition},
};

/// Minimum time between overwrites of another writer's condition: two writers that disagree would otherwise keep each
/// other busy.
const PEACE: Duration = Duration::from_secs(10);

/// When another writer's condition was last overwritten, by node.
#[derive(Debug, Default)]
pub(in crate::controllers::node_route) struct Shown(Mutex<HashMap<String, Instant>>);

impl Shown {
    /// How long to leave the condition alone; `None` means that it is ours, or may be overwritten now.
    fn peace(&self, node: &Node, now: Instant) -> Option<Duration> {
        let mut overwritten = self.0.lock();
        if node.condition(condition::NETWORK_UNAVAILABLE).is_none() || condition::is_ours(node) {
            return None;
        }
        let left = overwritten.get(&node.name).map(|at| (*at + PEACE).saturating_duration_since(now));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return Some(left);
        }
        overwritten.insert(node.name.clone(), now);
        None
    }

    /// Forgets a node that is gone.
    pub(in crate::controllers::node_route) fn forget(&self, node: &str) {
        self.0.lock().remove(node);
    }
}

impl Controller {
    /// Writes the condition unless the current node has it already.
    pub(super) async fn show(&self, node: &Node, wanted: &WantedCondition<'_>, again: &mut Again) {
        let now_known = self.parts.nodes.get(&node.name).filter(|known| known.uid == node.uid);
        let Some(node) = now_known.filter(|node| !condition::says(node, wanted)) else { return };
        if let Some(left) = self.shown.peace(&node, Instant::now()) {
            again.after(left);
            return;
        }
        let Some(patch) = node_condition(&node, wanted, crate::clock::now()) else { return };
        let Ok(_permit) = self.nodes_at_once.acquire().await else { return };
        match self.parts.writer.patch::<Node>(&node.name, &patch).await {
            Ok(_) => {
                tracing::info!(node = node.name, status = wanted.status, reason = wanted.reason, "condition");
            }
            Err(WriteError::NotFound | WriteError::Gone | WriteError::NotLeading) => {}
            Err(WriteError::HeldBack(later)) => again.after(later),
            Err(error) => again.failed(anyhow::Error::from(error)),
        }
    }
}
