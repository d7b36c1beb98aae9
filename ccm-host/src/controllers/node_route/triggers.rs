//! Decides when to reconcile a node: on its own changes, and on those of nodes that share a pod CIDR with it.
//!
//! In: the cache's changes. Out: keys in the queue; this alone makes no call. The [`sweep`](super::sweep) finds
//! changes in the cloud.

use super::{
    Controller,
    condition::{self, NETWORK_UNAVAILABLE},
    subject::Subject,
    table::Holder,
};
use crate::{
    controllers::taint,
    kube::{cache::Change, node::Node},
};

/// Whether a change of a node may affect its routes, or its condition.
fn matters(old: &Node, new: &Node) -> bool {
    let status = |node: &Node| {
        node.condition(NETWORK_UNAVAILABLE)
            .map(|condition| (condition.status.clone(), condition.reason.clone()))
    };
    old.pod_cidrs != new.pod_cidrs
        || old.addresses != new.addresses
        || old.provider_id != new.provider_id
        || old.has_taint(taint::UNINITIALIZED) != new.has_taint(taint::UNINITIALIZED)
        // Usually our own write, which requires nothing.
        || (status(old) != status(new) && !condition::is_ours(new))
}

impl Controller {
    pub(super) fn node_changed(&self, change: &Change<Node>) {
        let (node, looked_at) = match change {
            Change::Added(node) => (node, true),
            Change::Updated { old, new } => {
                (new, matters(old, new) || self.scope.contains(old) != self.scope.contains(new))
            }
            Change::Deleted(node) => {
                self.gone(node);
                return;
            }
        };
        // A node that is not ours takes no destination from one that is.
        let ours = self.scope.contains(node);
        let mut claims = self.claims.lock();
        let others = if ours { claims.see(node) } else { claims.forget(&node.name) };
        drop(claims);
        others.into_iter().chain(looked_at.then(|| node.name.clone())).for_each(|name| self.queue_node(name));
    }

    /// Skips the queue until some provider has been listed: nothing can be decided before, and the first list
    /// requeues every node.
    pub(super) fn queue_node(&self, name: String) {
        if self.clouds.iter().any(|cloud| cloud.learnt().is_some()) {
            self.queue.add(Subject::Node(name));
        }
    }

    fn gone(&self, node: &Node) {
        let others = self.claims.lock().forget(&node.name);
        self.events.forget(&node.name);
        self.shown.forget(&node.name);
        others.into_iter().chain([node.name.clone()]).for_each(|name| self.queue_node(name));
        let Some(instance) = node.provider_id.clone().map(Holder::Instance) else { return };
        for cloud in &self.clouds {
            let ids: Vec<String> = cloud.table.lock().of(&instance).map(|route| route.id.clone()).collect();
            ids.iter().for_each(|id| self.queue_stray(cloud.name(), id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::fixtures::node;

    /// WATCH-1, WATCH-2, WATCH-4; SW-32 for changes that upstream ignores.
    #[test]
    fn only_what_routes_depend_on_wakes_us() {
        let old = || node("n").with_provider_id("fake://n").with_pod_cidr("10.0.1.0/24").ready();
        let says = |status, reason| old().with_condition(NETWORK_UNAVAILABLE, status, reason);
        let rows = [
            ("WATCH-1 an address", old(), old().with_address("InternalIP", "10.9.9.9"), true),
            ("WATCH-2 a pod CIDR", old(), old().with_pod_cidr("fd00::/64"), true),
            ("WATCH-4 nothing that is kept", old(), old().version("2"), false),
            ("readiness", old(), old().not_ready(), false),
            ("a label", old(), old().with_label("x", "1"), false),
            ("a provider ID", node("n"), node("n").with_provider_id("fake://n"), true),
            ("initialised", node("n").tainted_uninitialized(), node("n"), true),
            ("our own condition", old(), says("False", "RouteCreated"), false),
            ("our own warning", says("False", "RouteCreated"), says("True", "NoRouteCreated"), false),
            ("SW-32 somebody's condition", says("False", "RouteCreated"), says("False", "CalicoIsUp"), true),
            ("SW-32 our condition taken away", says("False", "RouteCreated"), old(), true),
        ];
        for (name, old, new, want) in rows {
            assert_eq!(matters(&old, &new), want, "{name}");
        }
    }
}
