//! The nodes behind all balancers, computed once for all Services.
//!
//! In: the node cache, and a notice whenever a set may have changed. Out: the set of eligible nodes as each provider
//! wants it. [`super::fan_out`] decides who gets a new set, and when.
//!
//! Which nodes are eligible is upstream's rule. Readiness, cordon and the uninitialized taint do not matter: health checks
//! remove nodes that do not serve. A node being drained stays until something else happens, so that its connections
//! survive.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use crate::{
    cloud::{BackendSet, Provider, Providers},
    kube::{cache::Cache, node::Node},
};

#[derive(Debug)]
pub(super) struct Backends {
    nodes: Cache<Node>,
    providers: Providers,
    changes: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The count of changes when the sets were computed.
    as_of: u64,
    /// By provider, with its epoch: what a provider wants of a node is fixed within one epoch.
    sets: HashMap<String, (String, Arc<BackendSet>)>,
}

impl Backends {
    pub(super) fn new(nodes: Cache<Node>, providers: Providers) -> Self {
        Self { nodes, providers, changes: AtomicU64::new(0), known: Mutex::default() }
    }

    /// Invalidates the sets: the next request recomputes them. Never blocks.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// The nodes of this provider that are eligible now.
    pub(super) fn of(&self, provider: &dyn Provider) -> Arc<BackendSet> {
        let mut known = self.known.lock();
        let changes = self.changes.load(Ordering::Acquire);
        if known.as_of != changes {
            *known = Known { as_of: changes, sets: HashMap::new() };
        }
        let epoch = provider.info().map(|info| info.epoch.clone()).unwrap_or_default();
        match known.sets.get(provider.name()) {
            Some((of_epoch, set)) if *of_epoch == epoch => Arc::clone(set),
            _ => {
                let set = provider.backend_set(self.eligible(provider));
                known.sets.insert(provider.name().to_owned(), (epoch, Arc::clone(&set)));
                set
            }
        }
    }

    #[cfg(test)]
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn eligible(&self, provider: &dyn Provider) -> Vec<Arc<Node>> {
        let mut nodes = self.nodes.list();
        nodes.retain(|node| is_eligible(node) && self.providers.may_back(provider, node));
        nodes
    }
}

/// Excludes a node, unless its value is a boolean false.
pub(super) const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Set by the cluster autoscaler on a node that it is about to remove.
pub(super) const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// Whether balancers may send traffic to this node.
pub(super) fn is_eligible(node: &Node) -> bool {
    !node.is_deleting() && is_included(node) && !node.has_taint(AUTOSCALER_TAINT)
}

/// Whether a change of a node needs a check of all balancers at once. Taints and deletion do not.
pub(super) fn is_trigger(old: &Node, new: &Node) -> bool {
    is_included(old) != is_included(new) || old.provider_id != new.provider_id
}

fn is_included(node: &Node) -> bool {
    node.labels.get(EXCLUDE_LABEL).is_none_or(is_false)
}

/// The values that Go parses as false.
fn is_false(value: &str) -> bool {
    matches!(value, "0" | "f" | "F" | "false" | "False" | "FALSE")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::fixtures::node;

    fn ready() -> Node {
        node("n").ready().with_provider_id("cloud://n")
    }

    fn excluded(node: Node) -> Node {
        node.with_label(EXCLUDE_LABEL, "")
    }

    fn leaving(node: Node) -> Node {
        node.with_taint(AUTOSCALER_TAINT, "1700000000", "NoSchedule")
    }

    #[test]
    fn a_node_is_eligible_unless_deleted_excluded_or_leaving() {
        let labelled = |value: &str| ready().with_label(EXCLUDE_LABEL, value);
        let mut rows = vec![
            // PRED-1 and PRED-4 differ from upstream's table, which tests a list that production does not use.
            ("PRED-1", node("n"), true),
            ("PRED-2", ready(), true),
            ("PRED-3", node("n").ready(), true),
            ("PRED-4", ready().not_ready(), true),
            ("PRED-5", ready(), true),
            ("PRED-6", labelled(""), false),
            ("PRED-7", labelled("false"), true),
            ("PRED-8", labelled("true"), false),
            ("PRED-9", labelled("foo"), false),
            ("PRED-10", leaving(ready()), false),
            ("LBN-16", ready().deleting(), false),
            ("LBN-17", ready().with_taint("other", "", "NoSchedule"), true),
            ("1.12", ready().tainted_uninitialized().unschedulable(), true),
        ];
        rows.extend(["0", "f", "F", "FALSE", "False"].map(|value| ("PRED-11", labelled(value), true)));
        rows.extend(
            ["1", "t", "T", "TRUE", "True", "yes", "no", " false"]
                .map(|value| ("PRED-12", labelled(value), false)),
        );
        for (id, node, want) in rows {
            assert_eq!(is_eligible(&node), want, "{id}: {node:?}");
        }
    }

    /// LIST-1..3: a list filtered by a predicate keeps what passes, and may be empty.
    #[test]
    fn a_list_is_filtered() {
        let nodes: Vec<Node> = (0..5)
            .map(|number| {
                let node = node(&number.to_string());
                if number % 2 == 0 { excluded(node) } else { node }
            })
            .collect();
        let names = |keep: fn(&Node) -> bool| -> Vec<&str> {
            nodes.iter().filter(|node| keep(node)).map(|node| node.name.as_str()).collect()
        };
        assert_eq!(names(is_eligible), ["1", "3"], "LIST-1");
        assert_eq!(names(|node| !is_eligible(node)), ["0", "2", "4"], "LIST-2");
        assert!(names(|node| node.is_deleting()).is_empty(), "LIST-3");
    }

    #[test]
    fn a_change_triggers_if_exclusion_or_provider_id_differ() {
        let a = || node("n").ready().with_provider_id("a");
        let b = || node("n").ready().with_provider_id("b");
        let bare = || node("n").ready();
        let unready = || a().with_condition("Ready", "False", "x");
        let unknown = || node("n").with_provider_id("a");
        let taint = |node: Node| node.with_taint("other", "", "NoSchedule");
        let label = |node: Node| node.with_label("other", "x");
        let pressure = |node: Node, status| node.with_condition("DiskPressure", status, "x");
        let rows = [
            ("TRIG-1", a(), a(), false),
            ("TRIG-2", a(), excluded(a()), true),
            ("TRIG-3", excluded(a()), a(), true),
            ("TRIG-4", excluded(a()), excluded(a()), false),
            ("TRIG-5", a(), taint(a()), false),
            ("TRIG-6", taint(a()), a(), false),
            ("TRIG-7", a(), label(a()), false),
            ("TRIG-8", label(a()), a(), false),
            ("TRIG-9", unready(), unready(), false),
            ("TRIG-10", unready(), unknown(), false),
            ("TRIG-11", unknown(), unready(), false),
            ("TRIG-12", unknown(), unknown(), false),
            ("TRIG-13", pressure(unready(), "False"), pressure(unready(), "True"), false),
            ("TRIG-14", pressure(unready(), "True"), pressure(unready(), "False"), false),
            ("TRIG-15", pressure(a(), "False"), pressure(a(), "True"), false),
            ("TRIG-16", pressure(a(), "True"), pressure(a(), "False"), false),
            ("TRIG-17", a(), a().deleting(), false),
            ("TRIG-18", bare(), a(), true),
            ("TRIG-19", a(), bare(), true),
            ("TRIG-20", a(), b(), true),
            ("TRIG-21", leaving(a()), excluded(leaving(a())), true),
            ("TRIG-22", excluded(leaving(a())), leaving(a()), true),
            ("TRIG-23", leaving(bare()), leaving(a()), true),
            ("TRIG-24", leaving(a()), leaving(bare()), true),
            ("TRIG-25", leaving(a()), leaving(b()), true),
            ("TRIG-26", leaving(unready()), leaving(a()), false),
            ("TRIG-27", leaving(a()), leaving(unready()), false),
            ("TRIG-28", excluded(a()), leaving(excluded(a())), false),
            ("TRIG-29", leaving(excluded(a())), excluded(a()), false),
            ("TRIG-30", excluded(unready()), excluded(a()), false),
            ("TRIG-31", excluded(a()), excluded(unready()), false),
            ("TRIG-32", excluded(bare()), excluded(a()), true),
            ("TRIG-33", excluded(a()), excluded(bare()), true),
            ("TRIG-34", excluded(a()), excluded(b()), true),
            ("TRIG-35", unready(), leaving(unready()), false),
            ("TRIG-36", leaving(unready()), unready(), false),
            ("TRIG-37", unready(), excluded(unready()), true),
            ("TRIG-38", excluded(unready()), unready(), true),
            ("TRIG-39", bare().not_ready(), a().not_ready(), true),
            ("TRIG-40", a().not_ready(), bare().not_ready(), true),
            ("TRIG-41", a().not_ready(), b().not_ready(), true),
            ("TRIG-42", bare(), excluded(bare()), true),
            ("TRIG-43", excluded(bare()), bare(), true),
            ("TRIG-44", bare(), bare(), false),
            ("TRIG-45", bare(), bare().not_ready(), false),
            ("TRIG-46", leaving(bare()), bare(), false),
            ("TRIG-47", bare(), leaving(bare()), false),
            ("TRIG-48", a(), leaving(a()), false),
            ("TRIG-48", leaving(a()), a(), false),
        ];
        for (id, old, new, want) in rows {
            assert_eq!(is_trigger(&old, &new), want, "{id}");
        }
    }
}
