//! Metrics: usage of the cluster CIDRs, under upstream's names.

use std::sync::atomic::AtomicU64;

use ipnet::IpNet;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use ccm_base::metric::{Buckets, Declare, Histograms};

/// Upstream's buckets.
const TRIES: Buckets = Buckets(&[1.0, 5.0, 25.0, 125.0, 625.0]);

type Ratio = Gauge<f64, AtomicU64>;

#[expect(non_snake_case, reason = "upstream's label")]
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfSet {
    clusterCIDR: String,
}

/// The metrics of this controller. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct IpamMetrics {
    allocations: Family<OfSet, Counter>,
    releases: Family<OfSet, Counter>,
    capacity: Family<OfSet, Ratio>,
    usage: Family<OfSet, Ratio>,
    tries: Histograms<OfSet>,
}

/// The series of one cluster CIDR.
#[derive(Debug)]
pub(super) struct SetSeries {
    allocations: Counter,
    releases: Counter,
    usage: Ratio,
    tries: Histogram,
}

impl IpamMetrics {
    #[must_use]
    pub(super) fn register(registry: &mut Registry) -> Self {
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

    pub(super) fn of_set(&self, cluster: &IpNet, capacity: f64) -> SetSeries {
        let label = OfSet { clusterCIDR: cluster.to_string() };
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
    pub(super) fn allocated(&self, blocks: u128, usage: f64) {
        self.allocations.inc_by(count(blocks));
        self.usage.set(usage);
    }

    pub(super) fn released(&self, blocks: u128, usage: f64) {
        self.releases.inc_by(count(blocks));
        self.usage.set(usage);
    }

    #[expect(clippy::cast_precision_loss, reason = "a histogram for people")]
    pub(super) fn tried(&self, skipped: u128) {
        self.tries.observe(skipped as f64);
    }
}

fn count(blocks: u128) -> u64 {
    u64::try_from(blocks).unwrap_or(u64::MAX)
}
