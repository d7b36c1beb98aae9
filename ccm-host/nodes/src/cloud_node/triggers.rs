//! Decides when to reconcile a node: on its own changes, on its provider's reports, and periodically.
//!
//! In: the cache's changes, the provider's watch, the clock. Out: keys in the queue, and which of them must ask the
//! provider. All nodes of a provider that are due together are asked about together, so that they share few calls.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::broadcast::error::RecvError,
    time::{Instant, sleep_until},
};

use super::{Controller, addresses, is_new, labels, problem};
use ccm_cloud::{Freshness, NodeOwner, Provider};
use ccm_kube::{cache::Change, node::Node, patch::NodeChange};
use ccm_reconcile::Sweeps;

/// Contested nodes that get an Event: there may be thousands, with one cause.
const MOST_TOLD: usize = 10;

/// The reaction that a change of a node requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Concern {
    /// Nothing here.
    None,
    Look,
    /// A reconcile that asks the provider even though the node is initialised.
    Ask,
}

/// NW-10: most changes of a node do not concern us.
pub(super) fn concern(change: &Change<Node>) -> Concern {
    match change {
        Change::Deleted(_) => Concern::None,
        Change::Added(node) => look_if(is_new(node) || names_disagree(node)),
        Change::Updated { old, new } if is_new(new) => {
            let same = old.taints == new.taints
                && old.labels == new.labels
                && old.annotations == new.annotations
                && old.provider_id == new.provider_id
                && old.addresses == new.addresses
                && old.system_uuid == new.system_uuid;
            look_if(!same)
        }
        // Usually our own write, for which the provider was just asked.
        Change::Updated { old, new } if is_new(old) => look_if(names_disagree(new)),
        Change::Updated { old, new } => {
            let told = |node: &Node| node.annotations.get(addresses::PROVIDED_NODE_IP).map(str::to_owned);
            if told(old) != told(new) || old.provider_id != new.provider_id {
                return Concern::Ask;
            }
            look_if(old.labels != new.labels && names_disagree(new))
        }
    }
}

fn shows_our_write(change: &Change<Node>) -> bool {
    matches!(change, Change::Updated { old, new } if is_new(old) && !is_new(new))
}

fn look_if(wanted: bool) -> Concern {
    if wanted { Concern::Look } else { Concern::None }
}

fn names_disagree(node: &Node) -> bool {
    let mut change = NodeChange::default();
    labels::mirror(node, &mut change);
    change != NodeChange::default()
}

impl Controller {
    /// Handles a change of a node. All that are known already come first, as added.
    pub(super) fn node_changed(&self, change: &Change<Node>) {
        let name = &change.object().name;
        match concern(change) {
            Concern::Look => self.lane(change.object()).queue.add(name.clone()),
            Concern::Ask => {
                let freshness = Freshness::AtMost(self.parts.settings.nodes.node_status_update_frequency);
                self.ask_again(change.object(), freshness);
            }
            Concern::None if matches!(change, Change::Deleted(_)) => self.forget(name),
            // What the provider reported meanwhile could not be asked about before.
            Concern::None if shows_our_write(change) && self.memory.lock().is_due(name) => {
                self.known.queue.add(name.clone());
            }
            Concern::None => {}
        }
    }

    /// Follows one provider's reports, and sweeps over its nodes periodically.
    pub(super) async fn follow_provider(&self, provider: &Arc<dyn Provider>) {
        let mut changes = provider.instance_changes();
        let mut sweeps = Sweeps::of(provider.as_ref());
        let mut is_told = true;
        let mut next = Instant::now();
        loop {
            tokio::select! {
                () = sleep_until(next) => {
                    next = Instant::now() + self.period(provider);
                    self.sweep(provider);
                }
                () = sweeps.due() => {
                    sweeps.made(self.period(provider));
                    self.sweep_at_once(provider);
                }
                change = changes.recv(), if is_told => match change {
                    Ok(key) => self.instance_changed(&key),
                    Err(RecvError::Lagged(_)) => sweeps.wish(),
                    // No more reports will come; the periodic sweeps continue.
                    Err(RecvError::Closed) => is_told = false,
                },
            }
        }
    }

    pub(super) fn period(&self, provider: &Arc<dyn Provider>) -> Duration {
        let own = self.parts.settings.nodes.node_status_update_frequency;
        provider.info().and_then(|info| info.instance_sweep).filter(|pace| !pace.is_zero()).unwrap_or(own)
    }

    /// The periodic reconcile of every initialised node. A node asked about recently waits for the next sweep.
    fn sweep(&self, provider: &Arc<dyn Provider>) {
        let period = self.period(provider);
        let now = Instant::now();
        for node in self.parts.nodes_of(provider).into_iter().filter(|node| !is_new(node)) {
            let answered = self.memory.lock().answered_at(&node.name);
            if answered.is_none_or(|at| now.saturating_duration_since(at) >= period / 2) {
                self.ask_again(&node, Freshness::AtMost(period));
            }
        }
        self.count_ownerless();
    }

    /// Counts the nodes that no provider owns, or that several claim. Of the latter, a few get an Event.
    fn count_ownerless(&self) {
        let (providers, mut unmatched, mut contested) = (&self.parts.providers, 0, 0);
        for node in self.parts.nodes.list().iter().filter(|node| self.parts.is_ours(node)) {
            match providers.for_node(node) {
                NodeOwner::Nobody => unmatched += 1,
                NodeOwner::Undecided => {
                    let Some(contest) = providers.contest(node) else { continue };
                    contested += 1;
                    // A new one says so while it waits.
                    if contested <= MOST_TOLD && !is_new(node) {
                        self.report(node, &self.known, vec![problem::contested_id(node, &contest)]);
                    }
                }
                NodeOwner::Provider(_) | NodeOwner::Candidates(_) => {}
            }
        }
        self.metrics.ownerless(unmatched, contested);
    }

    /// Asks about everything now, since changes may have been missed; new nodes do not wait for their retry. Also about
    /// known nodes of others that were never asked about: that a provider introduced itself may have decided whose they are.
    fn sweep_at_once(&self, provider: &Arc<dyn Provider>) {
        tracing::debug!(provider = provider.name(), "changes may have been missed, checking all nodes");
        for node in self.parts.nodes.list().iter().filter(|node| self.parts.is_ours(node)) {
            let Some(owner) = self.parts.provider_of(node) else { continue };
            let is_unknown = || !is_new(node) && !self.memory.lock().knows(&node.name);
            if owner.name() == provider.name() || is_unknown() {
                self.ask_again(node, Freshness::NOW);
            }
        }
    }

    /// Handles a report about an instance, named by its provider ID or its node.
    fn instance_changed(&self, key: &str) {
        let nodes = &self.parts.nodes;
        for node in nodes.by_index(key).into_iter().chain(nodes.get(key)) {
            self.ask_again(&node, Freshness::NOW);
        }
    }

    fn ask_again(&self, node: &Node, freshness: Freshness) {
        self.memory.lock().due(&node.name, freshness);
        self.lane(node).queue.add(node.name.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccm_kube::fixtures::node;

    #[test]
    fn only_what_concerns_us_wakes_us() {
        let old = || node("n").with_provider_id("fake://1").with_label("x", "1").ready();
        let new = || node("n").tainted_uninitialized();
        let zone = |node: Node| node.with_label("topology.kubernetes.io/zone", "a");
        let updated = |old: Node, new: Node| Change::Updated { old: Arc::new(old), new: Arc::new(new) };
        let rows = [
            ("a new node", Change::Added(Arc::new(new())), Concern::Look),
            ("a node that is done, as after a restart", Change::Added(Arc::new(old())), Concern::None),
            ("the names of its zone disagree", Change::Added(Arc::new(zone(old()))), Concern::Look),
            ("gone", Change::Deleted(Arc::new(new())), Concern::None),
            ("NW-10 readiness of a new node", updated(new(), new().ready()), Concern::None),
            (
                "NODE-33 the kubelet writes an address",
                updated(new(), new().with_address("Hostname", "a")),
                Concern::Look,
            ),
            ("NODE-33 a label of a new node", updated(new(), new().with_label("x", "1")), Concern::Look),
            ("tainted by somebody", updated(old(), old().tainted_uninitialized()), Concern::Look),
            ("our own write", updated(new(), old()), Concern::None),
            ("untainted by somebody", updated(zone(new()), zone(new().with_provider_id("x"))), Concern::Look),
            ("NW-10 readiness", updated(old(), old().not_ready()), Concern::None),
            (
                "NW-10 addresses, our own write",
                updated(old(), old().with_address("InternalIP", "1.1.1.1")),
                Concern::None,
            ),
            ("a label that is not ours", updated(old(), old().with_label("x", "2")), Concern::None),
            ("NW-12 a zone by one name", updated(old(), zone(old())), Concern::Look),
            (
                "the kubelet got another IP",
                updated(old(), old().with_annotation(addresses::PROVIDED_NODE_IP, "1.1.1.1")),
                Concern::Ask,
            ),
            ("another annotation", updated(old(), old().with_annotation("x", "y")), Concern::None),
            ("a provider ID from somebody", updated(node("n"), old()), Concern::Ask),
        ];
        for (id, change, want) in rows {
            assert_eq!(concern(&change), want, "{id}");
        }
    }
}
