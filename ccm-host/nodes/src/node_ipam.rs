//! Gives each node its pod CIDRs, once.
//!
//! In: Nodes without podCIDRs, and the cluster CIDRs to divide or a provider that allots. Out: `spec.podCIDR` and
//! `spec.podCIDRs`. Existing podCIDRs are never changed; an invalid one that conflicts with nothing is reported and
//! otherwise ignored. [`crate::node_route`] makes the routes to pods.
//!
//! ```text
//! Node cache ──► observe: the ledger ──► queue ──► decide: which blocks, or what the provider says ──► act: one patch
//!                    ▲                                                                                      │
//!                    └──────────── what the node has, or certainly does not have ◄──────────────────────────┘
//! ```
//!
//! Nothing is assigned before every node of the synced cache is in the ledger.

mod act;
mod cidr_set;
mod decide;
mod ledger;
mod observe;
mod problem;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use ipnet::IpNet;
use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use ccm_base::metric::{Buckets, Declare, Histograms, MetricLabels};
use ccm_cloud::Provider;
use ccm_kube::{
    keep::Keep,
    queue::{Backoff, Outcome},
};
use ccm_reconcile::{
    Kept, Parts, Reconciler, Registration, Shell, pace::NodePaces, run, settings::cidrs::Allocation,
};
use ledger::Ledger;

/// Runs only if it is named: upstream's manager has no node-ipam, published manifests say `--allocate-node-cidrs=true`
/// in clusters whose pod CIDRs come from kube-controller-manager, and two allocators would assign one block twice.
pub const REGISTRATION: Registration = Registration {
    account: Some("node-controller"),
    keep: |settings| Kept::of_managed_nodes(settings, &Keep::default()),
    served_by: |settings| match settings.cidrs.allocation {
        Some(Allocation::Cloud) => Some(|provider| provider.pod_cidrs),
        Some(Allocation::Ranges { .. }) | None => None,
    },
    ..Registration::of::<Controller>("nodeipam", |parts, registry| Controller::new(parts, registry).map(run))
};

#[derive(Debug)]
pub struct Controller {
    shell: Shell<String>,
    /// The cluster CIDRs that are divided; `None` if the providers allot.
    ledger: Option<Mutex<Ledger>>,
    /// How often a node's changes may have its cloud asked.
    paces: NodePaces,
}

impl Controller {
    /// `None` if the settings turn it off, which it logs.
    pub fn new(parts: Parts, registry: &mut Registry) -> Option<Arc<Self>> {
        let shell = Shell::of::<Self>(parts);
        let ledger = match &shell.parts.settings.cidrs.allocation {
            Some(Allocation::Ranges { ranges, reserved }) => {
                Some(Mutex::new(Ledger::new(ranges, reserved, &IpamMetrics::register(registry))))
            }
            Some(Allocation::Cloud) => None,
            None => {
                tracing::info!("nodes are given no pod CIDRs: --allocate-node-cidrs is false");
                return None;
            }
        };
        Some(Arc::new(Self { shell, ledger, paces: NodePaces::default() }))
    }
}

impl Reconciler for Controller {
    /// The name of a node.
    type Key = String;
    const NAME: &'static str = "node-ipam-controller";
    /// Upstream's.
    const COMPONENT: &'static str = "cidrAllocator";
    const QUEUE: &'static str = "cidrallocator_node";
    /// The maximum bounds the wait, however long a node fails.
    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(250), max: Duration::from_secs(120) };
    /// Questions to a provider share calls; only writes are limited.
    const AT_ONCE: usize = 8192;

    fn shell(&self) -> &Shell<String> {
        &self.shell
    }

    /// On return, all nodes are in the ledger.
    async fn begin(self: &Arc<Self>) {
        let nodes = &self.shell.parts.nodes;
        if self.ledger.is_some() {
            // A block is free if no node has it, and no test in a patch can say that: the former leader's last writes
            // must be seen.
            nodes.list_anew();
        }
        nodes.synced().await;
        ccm_reconcile::follow(self, nodes, Self::node_changed);
    }

    /// A provider that has just connected may own nodes that no other provider did.
    async fn background(&self) {
        let parts = &self.shell.parts;
        let look = || {
            let nodes = parts.nodes.list();
            let waiting = nodes.iter().filter(|node| decide::wants(node));
            waiting.for_each(|node| self.shell.queue.add(node.name.clone()));
        };
        if self.ledger.is_none() {
            let period = parts.settings.nodes.node_status_update_frequency;
            ccm_reconcile::at_each_sweep(parts.providers.all(), period, look).await;
        }
    }

    fn provider_of(&self, name: &String) -> Option<Arc<dyn Provider>> {
        self.shell.parts.provider_of_named(name)
    }

    async fn reconcile(&self, name: &String) -> Outcome {
        let (parts, reports) = (&self.shell.parts, &self.shell.reports);
        let Some(node) = parts.nodes.get(name) else { return reports.clear(name) };
        let said = if decide::wants(&node) && parts.settings.manages(&node) {
            Box::pin(self.settle(&node)).await
        } else {
            Ok(self.wrong(&node))
        };
        // A pass of what it is by now follows.
        let is_current = parts
            .nodes
            .get(name)
            .is_some_and(|now| now.uid == node.uid && decide::wants(&now) == decide::wants(&node));
        match said {
            Ok(said) if is_current => reports.set(name, Some((&*node).into()), said),
            Ok(_) => Outcome::Done,
            Err(outcome) => outcome,
        }
    }
}

/// Upstream's buckets.
const TRIES: Buckets = Buckets(&[1.0, 5.0, 25.0, 125.0, 625.0]);

type Ratio = Gauge<f64, AtomicU64>;

type OfSet = MetricLabels<1, String>;

/// How much of the cluster CIDRs is used, under upstream's names. Cheap to clone.
#[derive(Debug, Clone)]
struct IpamMetrics {
    allocations: Family<OfSet, Counter>,
    releases: Family<OfSet, Counter>,
    capacity: Family<OfSet, Ratio>,
    usage: Family<OfSet, Ratio>,
    tries: Histograms<OfSet>,
}

/// The series of one cluster CIDR.
#[derive(Debug)]
struct SetSeries {
    allocations: Counter,
    releases: Counter,
    usage: Ratio,
    tries: Histogram,
}

impl IpamMetrics {
    fn register(registry: &mut Registry) -> Self {
        let capacity: Family<OfSet, Ratio> =
            registry.metric("node_ipam_controller_cidrset_max_cidrs", "Blocks of the cluster CIDR");
        registry.register(
            "node_ipam_controller_cirdset_max_cidrs",
            "Same as node_ipam_controller_cidrset_max_cidrs, under upstream's misspelled name",
            capacity.clone(),
        );
        Self {
            allocations: registry.metric(
                "node_ipam_controller_cidrset_cidrs_allocations",
                "Blocks that became occupied, allocated here or found on a node",
            ),
            releases: registry
                .metric("node_ipam_controller_cidrset_cidrs_releases", "Blocks that became free"),
            capacity,
            usage: registry.metric(
                "node_ipam_controller_cidrset_usage_cidrs",
                "Fraction of blocks that are occupied, 0 to 1",
            ),
            tries: registry.histograms(
                "node_ipam_controller_cidrset_allocation_tries_per_request",
                "Occupied blocks skipped to find a free one",
                TRIES,
            ),
        }
    }

    fn of_set(&self, cluster: &IpNet, capacity: f64) -> SetSeries {
        let label = [("clusterCIDR", cluster.to_string())];
        self.capacity.get_or_create_owned(&label).set(capacity);
        SetSeries {
            allocations: self.allocations.get_or_create_owned(&label),
            releases: self.releases.get_or_create_owned(&label),
            usage: self.usage.get_or_create_owned(&label),
            tries: self.tries.get_or_create_owned(&label),
        }
    }
}

impl SetSeries {
    /// Counts blocks that became occupied, or free.
    fn count(&self, of: &Counter, blocks: u128, usage: f64) {
        of.inc_by(u64::try_from(blocks).unwrap_or(u64::MAX));
        self.usage.set(usage);
    }
}
