//! What is measured: what goes, what is held back, and whether a guard has latched.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// The metrics of this controller. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct LifecycleMetrics {
    latched: Family<ProviderLabel, Gauge>,
    held_back: Family<ProviderLabel, Gauge>,
    absent: Family<ProviderLabel, Gauge>,
    deletions: Family<ProviderLabel, Counter>,
    failures: Family<ProviderLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProviderLabel {
    provider: String,
}

/// What one pass over a provider's nodes came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PassCount {
    pub(super) latched: bool,
    pub(super) held_back: usize,
    pub(super) absent: usize,
}

impl LifecycleMetrics {
    /// Registers them.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "node_lifecycle_deletion_guard_latched",
            "Whether no node of a provider is deleted (1) because too many would be",
            metrics.latched.clone(),
        );
        registry.register(
            "node_lifecycle_deletions_blocked",
            "Nodes that would be deleted, were the guard not latched",
            metrics.held_back.clone(),
        );
        registry.register(
            "node_lifecycle_absent_nodes",
            "Nodes that are not ready and whose instance is absent, confirmed or not",
            metrics.absent.clone(),
        );
        registry.register(
            "node_lifecycle_deletions",
            "Nodes deleted because their instance is gone",
            metrics.deletions.clone(),
        );
        registry.register(
            "node_lifecycle_deletion_failures",
            "Deletions that the apiserver did not carry out",
            metrics.failures.clone(),
        );
        metrics
    }

    pub(super) fn passed(&self, provider: &str, count: PassCount) {
        let PassCount { latched, held_back, absent } = count;
        let gauge = |nodes: usize| i64::try_from(nodes).unwrap_or(i64::MAX);
        let label = label(provider);
        self.latched.get_or_create(&label).set(i64::from(latched));
        self.held_back.get_or_create(&label).set(gauge(held_back));
        self.absent.get_or_create(&label).set(gauge(absent));
    }

    pub(super) fn deleted(&self, provider: &str) {
        self.deletions.get_or_create(&label(provider)).inc();
    }

    pub(super) fn failed(&self, provider: &str) {
        self.failures.get_or_create(&label(provider)).inc();
    }
}

fn label(provider: &str) -> ProviderLabel {
    ProviderLabel { provider: provider.to_owned() }
}
