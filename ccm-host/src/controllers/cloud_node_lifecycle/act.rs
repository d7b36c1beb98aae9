//! Writes taints, deletes nodes, and shows which are held back.
//!
//! In: what was decided. Out: guarded writes, each followed by its Event. A write that conflicts is left to the next
//! pass, which decides again.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    Controller, Memory,
    control::Life,
    decide::{CONFIRM_DELETION, is_ready},
    guard::Rule,
};
use crate::{
    clock,
    cloud::{Family, Provider, ProviderStatus},
    kube::{
        events::EventType,
        node::{Node, Taint},
        patch::{NodeChange, Patch, WantedCondition, WriteError, node_condition, node_main},
        queue::Backoff,
    },
};

/// The condition of a node that is not deleted although its instance is gone.
pub(super) const HELD_BACK: &str = "CloudProviderDeletionBlocked";

const WRITES_AT_ONCE: usize = 16;

const BACKOFF: Backoff = Backoff { base: Duration::from_secs(10), max: Duration::from_secs(300) };

/// Deletions that failed, by uid, and when to retry each.
#[derive(Debug, Default)]
pub(super) struct Failures(HashMap<String, (u32, Instant)>);

impl Failures {
    fn may_try(&self, node: &Node, now: Instant) -> bool {
        self.0.get(&node.uid).is_none_or(|(_, next)| *next <= now)
    }

    fn failed(&mut self, node: &Node, now: Instant) {
        let (failures, next) = self.0.entry(node.uid.clone()).or_insert((0, now));
        *next = now + BACKOFF.delay(*failures);
        *failures = failures.saturating_add(1);
    }

    pub(super) fn only(&mut self, nodes: &[Arc<Node>]) {
        let uids: HashSet<&str> = nodes.iter().map(|node| node.uid.as_str()).collect();
        self.0.retain(|uid, _| uids.contains(uid.as_str()));
    }
}

/// Does this for each, several at a time; the results come in any order.
pub(super) async fn each<T, R: Future>(all: Vec<T>, work: impl FnMut(T) -> R) -> Vec<R::Output> {
    stream::iter(all).map(work).buffer_unordered(WRITES_AT_ONCE).collect().await
}

impl Controller {
    /// Returns the nodes that were written.
    pub(super) async fn write_taints(&self, changes: Vec<(Arc<Node>, Vec<Taint>)>) -> Vec<Arc<Node>> {
        let write = async |(node, taints): (Arc<Node>, Vec<Taint>)| {
            let change = NodeChange { taints: Some(taints), ..NodeChange::default() };
            let patch = node_main(&node, &change)?;
            self.write(&node, &patch, "shutdown taint").await.then_some(node)
        };
        each(changes, write).await.into_iter().flatten().collect()
    }

    /// Whether the patch was written. A failure is left to the next pass.
    async fn write(&self, node: &Node, patch: &Patch, what: &str) -> bool {
        match self.parts.writer.patch::<Node>(&node.name, patch).await {
            Ok(_) => {
                tracing::info!(node = node.name, "{what} written");
                true
            }
            Err(
                WriteError::NotFound
                | WriteError::Gone
                | WriteError::Conflict
                | WriteError::NotLeading
                | WriteError::HeldBack(_),
            ) => false,
            Err(error) => {
                let error = anyhow::Error::from(error);
                tracing::warn!(node = node.name, error = format!("{error:#}"), "{what} not written");
                false
            }
        }
    }

    /// Deletes nodes, after one more live check of each.
    pub(super) async fn delete_all(
        &self,
        provider: &Arc<dyn Provider>,
        nodes: Vec<Arc<Node>>,
        failures: &mut Failures,
    ) {
        let now = Instant::now();
        let due = nodes.into_iter().filter(|node| failures.may_try(node, now)).collect();
        let delete = async |node: Arc<Node>| {
            let deleted = self.delete(provider, &node).await;
            (node, deleted)
        };
        for (node, deleted) in each(due, delete).await {
            match deleted {
                Ok(true) => self.deleted(provider, &node),
                Ok(false) => {}
                Err(error) => {
                    failures.failed(&node, now);
                    self.not_deleted(provider, &node, &error);
                }
            }
        }
    }

    /// Whether the node was deleted; false if it has changed, and nothing was done.
    async fn delete(&self, provider: &Arc<dyn Provider>, node: &Node) -> anyhow::Result<bool> {
        let writer = &self.parts.writer;
        let live = writer.get::<Node>(&node.name, &self.parts.nodes.keep()).await?;
        let Some(live) = live else { return Ok(false) };
        if live.uid != node.uid || is_ready(&live) || !self.parts.is_ours(&live) {
            tracing::info!(node = node.name, "not deleted: it has changed in the meantime");
            return Ok(false);
        }
        if *provider.status(Family::Instances).borrow() != ProviderStatus::Serving {
            tracing::info!(node = node.name, "not deleted: its provider is not well");
            return Ok(false);
        }
        match writer.delete::<Node>(&node.name, &node.uid).await {
            Ok(()) => Ok(true),
            Err(WriteError::NotFound | WriteError::NotLeading | WriteError::HeldBack(_)) => Ok(false),
            Err(error) if error.is_stale() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reports that none of these nodes is deleted, for one reason; at the pace of retries of a failing deletion.
    pub(super) fn none_deleted(
        &self,
        provider: &Arc<dyn Provider>,
        nodes: &[Arc<Node>],
        failures: &mut Failures,
        error: &anyhow::Error,
    ) {
        let now = Instant::now();
        for node in nodes {
            if failures.may_try(node, now) {
                failures.failed(node, now);
                self.not_deleted(provider, node, error);
            }
        }
    }

    fn deleted(&self, provider: &Arc<dyn Provider>, node: &Node) {
        tracing::info!(
            node = node.name,
            uid = node.uid,
            provider = provider.name(),
            "deleted: its instance is gone"
        );
        self.metrics.deleted(provider.name());
        let message = "deleted the node because its instance does not exist any more";
        self.recorder.record(node, EventType::Normal, "DeletingNode", message);
    }

    fn not_deleted(&self, provider: &Arc<dyn Provider>, node: &Node, error: &anyhow::Error) {
        tracing::warn!(node = node.name, error = format!("{error:#}"), "not deleted");
        self.metrics.failed(provider.name());
        let message = format!(
            "the instance of the node does not exist any more, but the node is not deleted: {error:#}"
        );
        self.recorder.record(node, EventType::Warning, "DeletingNodeFailed", message);
    }

    /// Filters the nodes that may be deleted to those whose kubelets are silent; holds the others back.
    pub(super) async fn only_silent(
        &self,
        provider: &Arc<dyn Provider>,
        memory: &mut Memory,
        nodes: Vec<Arc<Node>>,
        held_back: &mut HashMap<String, Rule>,
    ) -> Vec<Arc<Node>> {
        let denied = nodes.into_iter().filter_map(|node| {
            let since = memory.guard.first_denied(&node.uid)?;
            Some((node, since))
        });
        let look = async |(node, since): (Arc<Node>, Timestamp)| {
            let life = self.life(&node, since).await;
            (node, life)
        };
        let looked = each(denied.collect(), look).await;
        let mut silent = Vec::new();
        for (node, life) in looked {
            match life {
                Ok(Life::Silent) => silent.push(node),
                Ok(Life::Alive) => {
                    memory.guard.found_alive(&node.uid);
                    held_back.insert(node.uid.clone(), Rule::Alive);
                }
                Ok(Life::Unsettled) => {
                    memory.guard.revoke(&node.uid);
                    held_back.insert(node.uid.clone(), Rule::Unsettled);
                }
                Err(error) => {
                    memory.guard.revoke(&node.uid);
                    self.none_deleted(provider, &[node], &mut memory.failures, &error);
                }
            }
        }
        silent
    }

    /// Sets the condition on nodes that are held back, with the rule.
    pub(super) async fn show_held_back(&self, nodes: Vec<(Arc<Node>, Rule)>) {
        let show = async |(node, rule): (Arc<Node>, Rule)| {
            let remedy = if rule.may_be_overruled() {
                format!("to delete this node anyway, annotate it with {CONFIRM_DELETION}={}", node.uid)
            } else {
                "stop its kubelet if the node is really to go".to_owned()
            };
            let why = rule.explanation();
            let explained = format!("the provider says that the instance is gone, but {why}; {remedy}");
            let wanted = WantedCondition {
                type_: HELD_BACK,
                status: "True",
                reason: rule.reason(),
                message: &explained,
            };
            if self.write_condition(&node, &wanted).await {
                self.recorder.record(&*node, EventType::Warning, "NodeDeletionBlocked", explained);
            }
        };
        each(nodes, show).await;
    }

    /// Clears the condition on nodes that are no longer held back.
    pub(super) async fn show_freed(&self, nodes: Vec<Arc<Node>>) {
        let wanted = WantedCondition {
            type_: HELD_BACK,
            status: "False",
            reason: "DeletionAllowed",
            message: "the node is not held back any more",
        };
        let show = async |node: Arc<Node>| {
            self.write_condition(&node, &wanted).await;
        };
        each(nodes, show).await;
    }

    /// Whether the condition was written; false if it was up to date.
    async fn write_condition(&self, node: &Node, wanted: &WantedCondition<'_>) -> bool {
        match node_condition(node, wanted, clock::now()) {
            Some(patch) => self.write(node, &patch, "condition").await,
            None => false,
        }
    }
}
