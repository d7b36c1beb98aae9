use std::future::ready;

use prometheus_client::encoding::text::encode;

use super::super::*;
use ccm_base::metric::of_provider;
use ccm_cloud::{
    ErrorReason,
    fake::{FakeProvider, error, method},
};
use ccm_reconcile::measured;

#[tokio::test]
async fn series_have_upstreams_names() {
    let mut registry = Registry::default();
    let metrics = ServiceMetrics::register(&mut registry);
    metrics.update_attempts.inc();
    metrics.update_failures.inc();
    metrics.update_latency.observe(3.0);
    drop(metrics.node_sync(Instant::now()));
    let refused = error(method::DELETE, Some(ErrorReason::QuotaExceeded));
    let (provider, call) = (FakeProvider::new("a"), ready(Err::<(), _>(refused)));
    measured(&metrics.operations, &*provider, "delete", call, |()| "ok").await.unwrap_err();
    metrics.orphans.get_or_create(&of_provider(provider.name(), [])).set(2);
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
