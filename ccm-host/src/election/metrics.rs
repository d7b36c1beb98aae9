//! Metrics of leader election.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLease {
    name: String,
}

#[derive(Debug, Clone, Default)]
pub struct Metrics {
    master: Family<OfLease, Gauge>,
    slow: Family<OfLease, Counter>,
}

impl Metrics {
    /// Registers the metrics, under upstream's names.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "leader_election_master_status",
            "1 while this replica is the leader, by Lease",
            metrics.master.clone(),
        );
        registry.register(
            "leader_election_slowpath",
            "Renewals that had to read the Lease first, by Lease",
            metrics.slow.clone(),
        );
        metrics
    }

    pub(super) fn leads(&self, lease: &str, leads: bool) {
        self.master.get_or_create(&OfLease { name: lease.to_owned() }).set(leads.into());
    }

    pub(super) fn renewed_slowly(&self, lease: &str) {
        self.slow.get_or_create(&OfLease { name: lease.to_owned() }).inc();
    }
}
