//! Metrics: upstream's series by their names, and what upstream does not measure.
//!
//! In: what happened. Out: series in the registry. The library appends `_total` to counters.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tokio::time::Instant;

use ccm_base::metric::{Buckets, Declare, OfProvider};
use ccm_reconcile::{OPERATION, Operations};

/// Upstream's: 1 s to 16384 s, each twice the one before.
const UPSTREAM: Buckets = Buckets(&[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
]);

/// The series of this controller. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    update_attempts: Counter,
    update_failures: Counter,
    update_latency: Histogram,
    node_sync_latency: Histogram,
    pub(super) operations: Operations,
    pub(super) pending: Gauge,
    orphans: Family<OfProvider, Gauge>,
}

impl Metrics {
    /// Registers all series.
    #[must_use]
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            update_attempts: registry.metric(
                "service_controller_loadbalancer_sync",
                "Attempts to update the nodes of a load balancer",
            ),
            update_failures: registry.metric(
                "service_controller_nodesync_error",
                "Failed attempts to update the nodes of a load balancer",
            ),
            update_latency: registry.histogram(
                "service_controller_update_loadbalancer_host_latency_seconds",
                "Time to update the nodes of one load balancer",
                UPSTREAM,
            ),
            node_sync_latency: registry.histogram(
                "service_controller_nodesync_latency_seconds",
                "Time from a node change until every load balancer is updated",
                UPSTREAM,
            ),
            operations: registry.histograms(
                "ccm_service_operation_duration_seconds",
                "Operations on load balancers by result: ok, in_progress or the reason of an error",
                OPERATION,
            ),
            pending: registry
                .metric("ccm_service_pending", "Services whose load balancer is not in the desired state"),
            orphans: registry.metric(
                "ccm_service_orphaned_load_balancers",
                "Load balancers of this cluster without a Service, as of the last sweep",
            ),
        }
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
        let labels = OfProvider::new(provider);
        self.orphans.get_or_create(&labels).set(i64::try_from(balancers).unwrap_or(i64::MAX));
    }

    /// Starts timing a change of nodes that began at `since`. Dropping the last clone stops the clock.
    pub(super) fn node_sync(&self, since: Instant) -> Arc<NodeSync> {
        Arc::new(NodeSync { since, latency: self.node_sync_latency.clone() })
    }
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
    use std::future::ready;

    use prometheus_client::encoding::text::encode;

    use super::*;
    use ccm_cloud::{
        ErrorReason,
        fake::{FakeProvider, error, method},
    };
    use ccm_reconcile::measured;

    #[tokio::test]
    async fn series_have_upstreams_names() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.update_begins();
        metrics.update_ended(false, Duration::from_secs(3));
        drop(metrics.node_sync(Instant::now()));
        let refused = error(method::DELETE, Some(ErrorReason::QuotaExceeded));
        let (provider, call) = (FakeProvider::new("a"), ready(Err::<(), _>(refused)));
        measured(&metrics.operations, &*provider, "delete", call, |()| "ok").await.unwrap_err();
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
