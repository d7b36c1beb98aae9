use prometheus_client::encoding::text::encode;

use super::super::*;
use ccm_kube::fixtures::node;

#[test]
fn delays_count_from_the_creation_of_the_node() {
    let mut registry = Registry::default();
    let metrics = CloudNodeMetrics::register(&mut registry);
    metrics.initialised(&node("n"), Timestamp::from_second(2000).unwrap());
    metrics.initialised(&node("from the future"), Timestamp::from_second(-5).unwrap());
    metrics.failed(&node("n").tainted_uninitialized(), "RATE_LIMITED");
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in [
        r#"node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le="1024.0"} 1"#,
        r#"node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le="4096.0"} 2"#,
        "node_controller_initial_node_sync_delay_seconds_sum 2000.0",
        r#"node_controller_failures_total{stage="initialise",reason="RATE_LIMITED"} 1"#,
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
}
