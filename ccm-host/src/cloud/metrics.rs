//! Metrics of calls to providers. Every series carries the provider's name on the command line.

mod log;
mod series;

use std::sync::Arc;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::{
    ProviderStatus,
    call::method::Class,
    check::{Findings, rule},
    connection::negotiate::Served,
};
use crate::buckets::Buckets;

pub(super) use series::{InFlight, ProviderMetrics};

/// Metrics of all providers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CloudMetrics {
    durations: Family<RpcLabels, Histogram, Buckets>,
    batch_sizes: Family<MethodLabels, Histogram, Buckets>,
    in_flight: Family<MethodLabels, Gauge>,
    connected: Family<ProviderLabels, Gauge>,
    serving: Family<ProviderLabels, Gauge>,
    epoch_changes: Family<ProviderLabels, Counter>,
    connect_failures: Family<ProviderLabels, Counter>,
    reordered: Family<ProviderLabels, Counter>,
    watch_missed: Family<ProviderLabels, Counter>,
    watch_streams: Family<EndLabels, Counter>,
    violations: Family<RuleLabels, Counter>,
    rate_limited: Family<ClassLabels, Counter<f64, std::sync::atomic::AtomicU64>>,
    versions: Family<VersionLabels, Gauge>,
    infos: Family<InfoLabels, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProviderLabels {
    provider: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RpcLabels {
    provider: Arc<str>,
    service: &'static str,
    method: &'static str,
    code: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    provider: Arc<str>,
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    provider: Arc<str>,
    end: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabels {
    provider: Arc<str>,
    rule: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabels {
    provider: Arc<str>,
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabels {
    provider: Arc<str>,
    service: &'static str,
    version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InfoLabels {
    provider: Arc<str>,
    version: String,
}

const SECONDS: Buckets = Buckets(&[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 600.0,
]);
const ITEMS: Buckets = Buckets(&[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0]);

impl Default for CloudMetrics {
    fn default() -> Self {
        Self {
            durations: Family::new_with_constructor(SECONDS),
            batch_sizes: Family::new_with_constructor(ITEMS),
            in_flight: Family::default(),
            connected: Family::default(),
            serving: Family::default(),
            epoch_changes: Family::default(),
            connect_failures: Family::default(),
            reordered: Family::default(),
            watch_missed: Family::default(),
            watch_streams: Family::default(),
            violations: Family::default(),
            rate_limited: Family::default(),
            versions: Family::default(),
            infos: Family::default(),
        }
    }
}

impl CloudMetrics {
    /// Registers all of them.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let all = Self::default();
        registry.register(
            "cloudprovider_rpc_duration_seconds",
            "Duration of calls to a provider, by outcome",
            all.durations.clone(),
        );
        registry.register("cloudprovider_rpc_batch_size", "Items per batch", all.batch_sizes.clone());
        registry.register("cloudprovider_rpcs_in_flight", "Calls in flight", all.in_flight.clone());
        registry.register(
            "cloudprovider_connected",
            "Whether the provider is connected (1)",
            all.connected.clone(),
        );
        registry.register(
            "cloudprovider_serving",
            "Whether the provider is healthy enough for destructive work (1)",
            all.serving.clone(),
        );
        registry.register(
            "cloudprovider_epoch_changes",
            "Restarts of the provider that the host noticed",
            all.epoch_changes.clone(),
        );
        registry.register(
            "cloudprovider_connect_failures",
            "Failed connections and handshakes",
            all.connect_failures.clone(),
        );
        registry.register(
            "cloudprovider_batch_reordered",
            "Batches answered in a different order, which is allowed",
            all.reordered.clone(),
        );
        registry.register(
            "cloudprovider_watch_missed",
            "Changes that a sweep found and the watch had missed",
            all.watch_missed.clone(),
        );
        registry.register(
            "cloudprovider_watch_streams",
            "Ended watch streams, by reason",
            all.watch_streams.clone(),
        );
        registry.register(
            "cloudprovider_contract_violations",
            "Violations of the contract by a provider, by rule",
            all.violations.clone(),
        );
        registry.register(
            "cloudprovider_rate_limited_seconds",
            "Time for which calls were paused because the cloud throttles",
            all.rate_limited.clone(),
        );
        registry.register(
            "cloudprovider_negotiated_version",
            "Negotiated version of each service (1)",
            all.versions.clone(),
        );
        registry.register(
            "cloudprovider_provider_info",
            "Version that the provider reports of itself (1)",
            all.infos.clone(),
        );
        all
    }

    /// Counts a change that a sweep found and this provider's watch did not report.
    pub fn watch_missed(&self, provider: &str) {
        self.watch_missed.get_or_create(&ProviderLabels { provider: provider.into() }).inc();
    }
}
