//! A provider that is slow, or throttled, is not failed for it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use serde_json::Value;
use support::{Mock, scenario, told};

/// Runs these cases, with this scenario. Returns the report, and what the screen told.
async fn run(mock: &Mock, scenario: &str, cases: &str, more: &[&str]) -> (Value, String) {
    let (file, reports) = (mock.folder.path().join("scenario.yaml"), mock.folder.path().join("reports"));
    std::fs::write(&file, scenario).unwrap();
    let mut suite = mock.suite(&["run", "--endpoint", &mock.endpoint(), "--filter", cases, "--scenario"]);
    suite.arg(&file).args(more).arg("--report-dir").arg(&reports);
    let output = suite.arg("--ledger-dir").arg(mock.folder.path().join("ledger")).output().await.unwrap();
    let told = told(&output);
    let report = std::fs::read(reports.join("conformance.json")).expect(&told);
    (serde_json::from_slice(&report).unwrap(), told)
}

fn text() -> String {
    std::fs::read_to_string(scenario()).unwrap()
}

#[tokio::test]
async fn a_case_that_runs_into_its_time_limit_is_not_run() {
    let mock = Mock::start(&["--fault", "latency,time=2s,method=BatchGetInstances"]).await;
    let (_, told) = run(&mock, &text(), "INST-14", &["--case-timeout", "1s"]).await;
    assert!(told.contains("not-run INST-14") && told.contains("still waiting after 1s"), "{told}");
}

#[tokio::test]
async fn what_asks_for_more_patience_than_there_is_is_not_run() {
    let throttled = "error,reason=RATE_LIMITED,method=BatchGetInstances,retry-after";
    for (after, patience, limit) in
        [("40s", "600s", "than 30s for one call: RATE_LIMITED"), ("2s", "1s", "the scenario's `patience`")]
    {
        let mock = Mock::start(&["--fault", &format!("{throttled}={after}")]).await;
        let scenario = format!("patience: {patience}\n{}", text());
        let (_, told) = run(&mock, &scenario, "INST-14", &[]).await;
        assert!(told.contains("not-run INST-14") && told.contains(limit), "{told}");
    }
}

/// A silent cloud makes the deadline pass, which has no reason.
#[tokio::test]
async fn a_cloud_that_is_silent_when_it_is_down_is_no_breach() {
    let mock = Mock::start(&[]).await;
    let (up, down) = (r#"'{"cloud_reachable": true}'"#, r#"'{"cloud_reachable": false}'"#);
    let hang = r#"{"kind": "hang", "method": "BatchGetInstances"}"#;
    let silent = text()
        .replace(&format!("patch conditions --body {down}"), &format!("post faults --body '{hang}'"))
        .replace(&format!("patch conditions --body {up}"), "delete faults hang");
    let (_, told) = run(&mock, &silent, "TRBL-01", &[]).await;
    assert!(told.contains("pass TRBL-01"), "{told}");
}

#[tokio::test]
async fn an_ensure_that_waits_until_it_is_done_is_no_breach() {
    let mock = Mock::start(&[]).await;
    let at_once = text().replace(r#""provisioning_ms": 400"#, r#""provisioning_ms": 0"#);
    let (_, told) = run(&mock, &at_once, "LB-10,LB-16", &[]).await;
    for case in ["LB-10", "LB-16"] {
        assert!(told.contains(&format!("not-run {case}")), "{told}");
    }
    assert!(told.contains("the Ensure waited until it was done"), "{told}");
}

#[tokio::test]
async fn a_call_about_no_balancer_makes_none() {
    let mock = Mock::start(&[]).await;
    let (report, told) = run(&mock, &format!("balancer-takes: 1ms\n{}", text()), "DEAD-02", &[]).await;
    assert!(told.contains("pass DEAD-02") && report["made"]["balancers"] == 0, "{told}");
}

/// Once, and then it is listed.
#[tokio::test]
async fn a_route_that_a_list_does_not_have_yet_is_removed_all_the_same() {
    let mock = Mock::start(&["--fault", "breach,rule=list-unreachable,method=ListRoutes,times=1"]).await;
    let (_, told) = run(&mock, &text(), "ROUTE-01", &[]).await;
    assert!(told.contains("pass ROUTE-01"), "{told}");
    assert_eq!(mock.admin.routes().await.unwrap(), [], "{told}");
}
