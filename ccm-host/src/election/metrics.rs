//! Who leads, in a number.

use prometheus_client::{
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Debug, Clone, Default)]
pub struct Metrics {
    master: Family<[(&'static str, String); 1], Gauge>,
}

impl Metrics {
    /// Registers it, under upstream's name.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "leader_election_master_status",
            "1 while this replica leads, by name of the Lease",
            metrics.master.clone(),
        );
        metrics
    }

    pub(super) fn leads(&self, lease: &str, leads: bool) {
        self.master.get_or_create(&[("name", lease.to_owned())]).set(leads.into());
    }
}
