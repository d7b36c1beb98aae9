//! The whole suite against the mock: nothing fails, nothing is skipped.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use serde_json::Value;
use support::{Mock, scenario};

/// What the suite cannot test against a mock on a Unix socket, and why.
const EXPLAINED: [(&str, &str); 5] = [
    ("SET-06", "it keeps sets"),
    ("SEC-03", "only root can call as another user"),
    ("SEC-04", "the endpoint is a Unix socket"),
    ("SEC-05", "the endpoint is a Unix socket"),
    // Tested in tls.rs.
    ("SEC-07", "no hook renew-certificates"),
];

#[tokio::test]
async fn the_mock_is_conformant() {
    let mock = Mock::start(&["--provisioning-delay", "20ms", "--deletion-delay", "20ms"]).await;
    let report = is_conformant(&mock).await;
    assert_eq!(report["waits"]["calls"]["RATE_LIMITED"], Value::Null);
}

/// D4: the contract forbids a provider to retry by itself, so the suite waits as the host does.
#[tokio::test]
async fn a_mock_whose_cloud_throttles_every_tenth_call_is_conformant() {
    let faults =
        CLOUD_CALLS.map(|method| format!("throttle,method={method},retry-after=50ms,probability=0.1"));
    let flags: Vec<&str> = faults.iter().flat_map(|fault| ["--fault", fault]).collect();
    let mock = Mock::start(&flags).await;
    let report = is_conformant(&mock).await;
    let waits = report["waits"]["calls"]["RATE_LIMITED"].as_u64();
    assert!(waits.is_some_and(|waits| waits > 20), "{}", report["waits"]);
}

/// The RPCs that reach a cloud.
const CLOUD_CALLS: [&str; 14] = [
    "BatchGetInstances",
    "ListInstances",
    "AddSshKeyToAllInstances",
    "GetLoadBalancer",
    "EnsureLoadBalancer",
    "BatchUpdateLoadBalancers",
    "DeleteLoadBalancer",
    "ListLoadBalancers",
    "ListRoutes",
    "BatchEnsureRoutes",
    "BatchDeleteRoutes",
    "BatchGetVolumeLabels",
    "ListClusters",
    "GetControlPlaneEndpoint",
];

/// Runs the whole suite; returns its report.
async fn is_conformant(mock: &Mock) -> Value {
    let reports = mock.folder.path().join("reports");
    let run = mock
        .suite(&["run", "--endpoint", &mock.endpoint(), "--scenario"])
        .arg(scenario())
        .arg("--report-dir")
        .arg(&reports)
        .arg("--ledger-dir")
        .arg(mock.folder.path().join("ledger"))
        .output()
        .await
        .unwrap();
    let told = support::told(&run);
    assert_eq!(run.status.code(), Some(0), "{told}");
    let report: Value =
        serde_json::from_slice(&std::fs::read(reports.join("conformance.json")).unwrap()).unwrap();
    assert_eq!(report["verdict"], "conformant");
    assert_eq!(report["left"], serde_json::json!([]), "{told}");
    let mut passed = 0;
    for case in report["cases"].as_array().unwrap() {
        let (id, is, why) =
            (&case["id"], &case["verdict"]["is"], case["verdict"]["why"].as_str().unwrap_or_default());
        let named = |known: &str| id.as_str().is_some_and(|id| id.starts_with(known));
        let explained = EXPLAINED.iter().any(|(known, reason)| named(known) && why == *reason);
        assert!(is == "pass" || explained, "{id}: {}", case["verdict"]);
        passed += usize::from(is == "pass");
    }
    assert!(passed >= 120, "{passed} cases passed");
    for (name, words) in [
        ("conformance.xml", "<testsuites name=\"provider-conformance\""),
        ("conformance.md", "# Conformance of mock"),
    ] {
        assert!(std::fs::read_to_string(reports.join(name)).unwrap().contains(words), "{name}");
    }
    let ledgers = std::fs::read_dir(mock.folder.path().join("ledger")).unwrap().count();
    assert_eq!(ledgers, 0, "a ledger goes with the last thing in it");
    assert_eq!(mock.admin.balancers().await.unwrap(), [], "nothing is left in the cloud");
    assert_eq!(mock.admin.routes().await.unwrap(), []);
    assert_eq!(mock.admin.ssh_keys().await.unwrap(), [], "nobody may log in for ever");
    report
}
