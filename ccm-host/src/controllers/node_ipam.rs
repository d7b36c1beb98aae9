//! Gives each node its pod CIDRs, once.
//!
//! In: Nodes without podCIDRs, and the cluster CIDRs to divide or a provider that allots. Out: `spec.podCIDR` and
//! `spec.podCIDRs`. Existing podCIDRs are never changed; an invalid one that conflicts with nothing is reported and
//! otherwise ignored. [`crate::controllers::node_route`] makes the routes to pods.
//!
//! ```text
//! Node cache ──► observe: the ledger ──► queue ──► decide: which blocks, or what the provider says ──► act: one patch
//!                    ▲                                                                                      │
//!                    └──────────── what the node has now, or has for certain not ◄──────────────────────────┘
//! ```
//!
//! Nothing is assigned before every node of the synced cache is in the ledger.

mod act;
mod cidr_set;
mod decide;
mod ledger;
mod metrics;
mod observe;
mod problem;
pub mod settings;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use ipnet::IpNet;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

use crate::{
    controllers::{Kept, Parts, Registration},
    kube::{
        events::Recorder,
        keep::Keep,
        queue::{Backoff, Outcome, WorkQueue},
    },
    reconcile::{self, Reconciler, Run},
};
use ledger::Ledger;
use metrics::IpamMetrics;
use problem::Problems;
use settings::Allocation;

/// The component that Events are recorded under.
const COMPONENT: &str = "cidrAllocator";

/// The maximum bounds the wait, however long a node fails.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(250), max: Duration::from_secs(120) };

/// Runs only if it is named: upstream's manager has no node-ipam, published manifests say `--allocate-node-cidrs=true`
/// in clusters whose pod CIDRs come from kube-controller-manager, and two allocators would assign one block twice.
pub const REGISTRATION: Registration = Registration {
    name: "node-ipam-controller",
    short_name: "nodeipam",
    alias: None,
    account: Some("node-controller"),
    by_default: false,
    admit: None,
    keep: |settings| Kept::of_managed_nodes(settings, &Keep::default()),
    served_by: |settings| match settings.cidrs.allocation {
        Some(Allocation::Cloud { .. }) => Some(|provider| provider.pod_cidrs),
        Some(Allocation::Ranges { .. }) | None => None,
    },
    start,
};

fn start(parts: Parts, registry: &mut Registry) -> Option<Run> {
    let Some(allocation) = parts.settings.cidrs.allocation.clone() else {
        tracing::info!("nodes are given no pod CIDRs: --allocate-node-cidrs is false");
        return None;
    };
    let controller = Arc::new(Controller::new(parts, allocation, registry));
    controller.parts.views.explains(Arc::<Controller>::clone(&controller));
    Some(reconcile::run(controller))
}

#[derive(Debug)]
pub(super) struct Controller {
    parts: Parts,
    recorder: Recorder,
    queue: WorkQueue<String>,
    source: Source,
    problems: Mutex<Problems>,
    /// One permit for each node being written.
    writing: Semaphore,
}

/// The source of pod CIDRs.
#[derive(Debug)]
enum Source {
    Ranges(Mutex<Ledger>),
    /// With the cluster CIDRs: a node waits for all their families.
    Cloud {
        cluster: Vec<IpNet>,
    },
}

impl Controller {
    pub(super) fn new(parts: Parts, allocation: Allocation, registry: &mut Registry) -> Self {
        let metrics = IpamMetrics::register(registry);
        let source = match allocation {
            Allocation::Ranges { ranges, reserved } => {
                Source::Ranges(Mutex::new(Ledger::new(&ranges, &reserved, &metrics)))
            }
            Allocation::Cloud { cluster } => Source::Cloud { cluster },
        };
        Self {
            recorder: parts.events.recorder(COMPONENT),
            queue: WorkQueue::new("cidrallocator_node", BACKOFF, &parts.metrics.queue),
            source,
            problems: Mutex::new(Problems::new(metrics)),
            writing: Semaphore::new(parts.settings.nodes.concurrent_node_syncs),
            parts,
        }
    }
}

impl Reconciler for Controller {
    type Key = String;
    /// Questions to a provider share calls; only writes are limited.
    const AT_ONCE: usize = 8192;

    fn queue(&self) -> &WorkQueue<String> {
        &self.queue
    }

    /// On return, all nodes are in the ledger.
    async fn begin(self: &Arc<Self>) {
        if matches!(self.source, Source::Ranges(_)) {
            // A block is free if no node has it, and no test in a patch can say that: the former leader's last writes
            // must be seen.
            self.parts.nodes.list_anew();
        }
        self.parts.nodes.synced().await;
        reconcile::follow(self, &self.parts.nodes, Self::node_changed);
    }

    /// A provider that connects may have what nobody had.
    async fn background(&self) {
        let look = || {
            let nodes = self.parts.nodes.list();
            let waiting = nodes.iter().filter(|node| decide::wants(node));
            waiting.for_each(|node| self.queue.add(node.name.clone()));
        };
        if matches!(self.source, Source::Cloud { .. }) {
            let period = self.parts.settings.nodes.node_status_update_frequency;
            let providers = self.parts.providers.all().iter();
            join_all(providers.map(|one| reconcile::at_each_sweep(one.as_ref(), period, look))).await;
        }
    }

    async fn reconcile(&self, name: &String) -> Outcome {
        let node = self.parts.nodes.get(name).filter(|node| self.parts.settings.manages(node));
        match node {
            Some(node) if decide::wants(&node) => Box::pin(self.settle(&node)).await,
            _ => Outcome::Done,
        }
    }
}
