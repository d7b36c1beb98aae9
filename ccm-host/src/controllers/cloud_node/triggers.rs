//! What makes us look at a node: its own changes, its provider's word, and time.
//!
//! In: the cache's changes, the provider's watch, the clock. Out: keys in the queue, and which of them are due to be asked
//! about. All nodes of a provider that are due at once are asked about at once, so that they share few calls.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::broadcast::error::RecvError,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{Shared, is_new, labels, provided_ip};
use crate::{
    cloud::{Freshness, NodeOwner, Provider},
    kube::{cache::Change, node::Node, patch::NodeChange},
};

/// What a change of a node calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Concern {
    /// Nothing here.
    None,
    Look,
    /// A look, and the provider shall be asked even though the node is initialised.
    Ask,
}

/// NW-10: most changes of a node are none of ours.
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
        // Our own write, most of the time: it was asked about just now.
        Change::Updated { old, new } if is_new(old) => look_if(names_disagree(new)),
        Change::Updated { old, new } => {
            let told = |node: &Node| node.annotations.get(provided_ip::ANNOTATION).map(str::to_owned);
            if told(old) != told(new) || old.provider_id != new.provider_id {
                return Concern::Ask;
            }
            look_if(old.labels != new.labels && names_disagree(new))
        }
    }
}

fn look_if(wanted: bool) -> Concern {
    if wanted { Concern::Look } else { Concern::None }
}

fn names_disagree(node: &Node) -> bool {
    let mut change = NodeChange::default();
    labels::mirror(node, &mut change);
    change != NodeChange::default()
}

/// Sweeps that are wished for since changes may have been missed. The first is made at once; the more often they are
/// wished, the rarer they become, up to the period at which nodes are looked at anyway.
#[derive(Debug, Default)]
struct Wished {
    due: Option<Instant>,
    /// Before that, none.
    earliest: Option<Instant>,
    distance: Duration,
}

/// Between the first two of these sweeps.
const DISTANCE: Duration = Duration::from_secs(10);

impl Wished {
    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn wish(&mut self, now: Instant) {
        self.due.get_or_insert_with(|| self.earliest.map_or(now, |earliest| earliest.max(now)));
    }

    fn made(&mut self, now: Instant, period: Duration) {
        let calm = self.earliest.is_none_or(|earliest| now > earliest + self.distance);
        self.distance = if calm { DISTANCE } else { self.distance * 2 }.min(period.max(DISTANCE));
        self.due = None;
        self.earliest = Some(now + self.distance);
    }
}

impl Shared {
    /// Follows the changes of all nodes, those known already included.
    pub(super) fn follow_nodes(self: &Arc<Self>) {
        let shared = Arc::downgrade(self);
        self.context.nodes.subscribe(move |change| {
            if let Some(shared) = shared.upgrade() {
                shared.changed(change);
            }
        });
    }

    fn changed(&self, change: &Change<Node>) {
        let name = &change.object().name;
        match concern(change) {
            Concern::Look => self.queue.add(name.clone()),
            Concern::Ask => {
                self.ask_again(name, Freshness::AtMost(self.context.settings.node_status_update_frequency));
            }
            Concern::None if matches!(change, Change::Deleted(_)) => self.forget(name),
            Concern::None => {}
        }
    }

    /// Follows one provider's word, and sweeps over its nodes from time to time.
    pub(super) async fn follow_provider(&self, provider: &Arc<dyn Provider>, cancel: &CancellationToken) {
        let mut changes = provider.instance_changes();
        let mut sweeps = provider.sweeps();
        let mut is_told = true;
        let mut next = Instant::now();
        let mut wished = Wished::default();
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = sleep_until(next) => {
                    next = Instant::now() + self.period(provider);
                    self.sweep(provider);
                }
                () = sleep_until(wished.due().unwrap_or(next)), if wished.due().is_some() => {
                    wished.made(Instant::now(), self.period(provider));
                    self.sweep_at_once(provider);
                }
                Ok(()) = sweeps.changed() => wished.wish(Instant::now()),
                change = changes.recv(), if is_told => match change {
                    Ok(key) => self.machine_changed(&key),
                    Err(RecvError::Lagged(_)) => wished.wish(Instant::now()),
                    // Nothing will be told any more; time goes on.
                    Err(RecvError::Closed) => is_told = false,
                },
            }
        }
    }

    fn period(&self, provider: &Arc<dyn Provider>) -> Duration {
        let own = self.context.settings.node_status_update_frequency;
        provider.info().and_then(|info| info.instance_sweep).filter(|pace| !pace.is_zero()).unwrap_or(own)
    }

    /// The periodic look at every node that is initialised. What was asked about not long ago waits for the next one.
    fn sweep(&self, provider: &Arc<dyn Provider>) {
        let period = self.period(provider);
        let now = Instant::now();
        for node in self.nodes_of(provider).into_iter().filter(|node| !is_new(node)) {
            if !self.attention.lock().is_answered_within(&node.name, period / 2, now) {
                self.ask_again(&node.name, Freshness::AtMost(period));
            }
        }
        self.count_unmatched();
    }

    /// Changes may have been missed: everything is asked about now, new nodes without waiting for their next try.
    fn sweep_at_once(&self, provider: &Arc<dyn Provider>) {
        tracing::debug!(provider = provider.name(), "changes may have been missed, looking at all nodes");
        for node in self.nodes_of(provider) {
            self.ask_again(&node.name, Freshness::ReadThrough);
        }
    }

    /// A machine is named by its provider ID or by its node.
    fn machine_changed(&self, key: &str) {
        let nodes = &self.context.nodes;
        for node in nodes.by_index(key).into_iter().chain(nodes.get(key)) {
            self.ask_again(&node.name, Freshness::ReadThrough);
        }
    }

    fn ask_again(&self, name: &str, freshness: Freshness) {
        self.attention.lock().due(name, freshness);
        self.queue.add(name.to_owned());
    }

    /// A node that may be several providers' is counted to the first of them.
    pub(super) fn owner_of(&self, node: &Node) -> Option<Arc<dyn Provider>> {
        match self.context.providers.for_node(node) {
            NodeOwner::Provider(owner) => Some(owner),
            NodeOwner::Candidates(all) => all.into_iter().next(),
            NodeOwner::Undecided | NodeOwner::Nobody => None,
        }
    }

    fn nodes_of(&self, provider: &Arc<dyn Provider>) -> Vec<Arc<Node>> {
        let is_its =
            |node: &Arc<Node>| self.owner_of(node).is_some_and(|owner| owner.name() == provider.name());
        self.in_scope().filter(is_its).collect()
    }

    fn count_unmatched(&self) {
        let nobodys = |node: &Arc<Node>| matches!(self.context.providers.for_node(node), NodeOwner::Nobody);
        self.context.metrics.unmatched(self.in_scope().filter(nobodys).count());
    }

    fn in_scope(&self) -> impl Iterator<Item = Arc<Node>> {
        self.context.nodes.list().into_iter().filter(|node| !node.is_deleting() && self.scope.contains(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::fixtures::node;

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
                updated(old(), old().with_annotation(provided_ip::ANNOTATION, "1.1.1.1")),
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
