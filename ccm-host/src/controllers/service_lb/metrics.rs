//! Metrics: upstream's series by their names, and what upstream does not measure.
//!
//! In: what happened. Out: series in the registry. The library appends `_total` to counters.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
    },
    registry::Registry,
};
use tokio::time::Instant;

use crate::{
    buckets::Buckets,
    cloud::{CloudError, InProgress},
};

/// Upstream's: 1 s to 16384 s, each twice the one before.
const UPSTREAM: Buckets = Buckets(&[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
]);

/// From an answer served from memory to the longest deadline.
const OPERATION: Buckets =
    Buckets(&[0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0]);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    provider: String,
    operation: &'static str,
    result: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfProvider {
    provider: String,
}

/// The series of this controller. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    update_attempts: Counter,
    update_failures: Counter,
    update_latency: Histogram,
    node_sync_latency: Histogram,
    operations: Family<Ended, Histogram, Buckets>,
    pub(super) pending: Gauge,
    orphans: Family<OfProvider, Gauge>,
}

impl Metrics {
    /// Registers all series.
    #[must_use]
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            update_attempts: Counter::default(),
            update_failures: Counter::default(),
            update_latency: UPSTREAM.new_metric(),
            node_sync_latency: UPSTREAM.new_metric(),
            operations: Family::new_with_constructor(OPERATION),
            pending: Gauge::default(),
            orphans: Family::default(),
        };
        registry.register(
            "service_controller_loadbalancer_sync",
            "Attempts to update the nodes of a load balancer",
            metrics.update_attempts.clone(),
        );
        registry.register(
            "service_controller_nodesync_error",
            "Failed attempts to update the nodes of a load balancer",
            metrics.update_failures.clone(),
        );
        registry.register(
            "service_controller_nodesync_latency_seconds",
            "Time from a node change until every load balancer is updated",
            metrics.node_sync_latency.clone(),
        );
        registry.register(
            "service_controller_update_loadbalancer_host_latency_seconds",
            "Time to update the nodes of one load balancer",
            metrics.update_latency.clone(),
        );
        registry.register(
            "ccm_service_operation_duration_seconds",
            "Operations on load balancers by result: ok, in_progress or the reason of an error",
            metrics.operations.clone(),
        );
        registry.register(
            "ccm_service_pending",
            "Services whose load balancer is not in the desired state",
            metrics.pending.clone(),
        );
        registry.register(
            "ccm_service_orphaned_load_balancers",
            "Load balancers of this cluster without a Service, as of the last sweep",
            metrics.orphans.clone(),
        );
        metrics
    }

    /// Makes a call to a provider and records its end; `result` is that of a success.
    pub(super) async fn operation<T>(
        &self,
        provider: &str,
        operation: &'static str,
        call: impl Future<Output = Result<T, CloudError>>,
        result: impl FnOnce(&T) -> &'static str,
    ) -> Result<T, CloudError> {
        let begun = Instant::now();
        let answer = call.await;
        let result = match &answer {
            Ok(answer) => result(answer).to_owned(),
            Err(error) => error.label(),
        };
        self.ended(provider, operation, result, begun.elapsed());
        answer
    }

    fn ended(&self, provider: &str, operation: &'static str, result: String, took: Duration) {
        let labels = Ended { provider: provider.to_owned(), operation, result };
        self.operations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub(super) fn update_begins(&self) {
        self.update_attempts.inc();
    }

    pub(super) fn update_ended(&self, ok: bool, took: Duration) {
        if !ok {
            self.update_failures.inc();
        }
        self.update_latency.observe(took.as_secs_f64());
    }

    pub(super) fn set_orphans(&self, provider: &str, balancers: usize) {
        let labels = OfProvider { provider: provider.to_owned() };
        self.orphans.get_or_create(&labels).set(i64::try_from(balancers).unwrap_or(i64::MAX));
    }

    /// Starts timing a change of nodes that began at `since`. Dropping the last clone stops the clock.
    pub(super) fn node_sync(&self, since: Instant) -> Arc<NodeSync> {
        Arc::new(NodeSync { since, latency: self.node_sync_latency.clone() })
    }
}

/// The result of a call that succeeded.
pub(super) fn result(in_progress: &Option<InProgress>) -> &'static str {
    if in_progress.is_some() { "in_progress" } else { "ok" }
}

/// A change of nodes that has not reached all balancers yet.
#[derive(Debug)]
pub(super) struct NodeSync {
    since: Instant,
    latency: Histogram,
}

impl Drop for NodeSync {
    fn drop(&mut self) {
        self.latency.observe(self.since.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn series_have_upstreams_names() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.update_begins();
        metrics.update_ended(false, Duration::from_secs(3));
        drop(metrics.node_sync(Instant::now()));
        metrics.ended("a", "delete", "QUOTA_EXCEEDED".to_owned(), Duration::from_secs(1));
        metrics.set_orphans("a", 2);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "service_controller_loadbalancer_sync_total 1",
            "service_controller_nodesync_error_total 1",
            "service_controller_nodesync_latency_seconds_bucket{le=\"16384.0\"} 1",
            "service_controller_update_loadbalancer_host_latency_seconds_sum 3.0",
            "ccm_service_operation_duration_seconds_count{provider=\"a\",operation=\"delete\",result=\"QUOTA_EXCEEDED\"} 1",
            "ccm_service_pending 0",
            "ccm_service_orphaned_load_balancers{provider=\"a\"} 2",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        }
    }
}
