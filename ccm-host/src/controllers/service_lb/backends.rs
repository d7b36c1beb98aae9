//! The nodes behind all balancers, computed once for all Services.
//!
//! In: the node cache, and a notice whenever a set may have changed. Out: the set of eligible nodes as each provider
//! wants it. [`super::fan_out`] decides who gets a new set, and when.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use super::nodes::is_eligible;
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
