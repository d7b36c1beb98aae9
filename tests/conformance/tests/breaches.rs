//! The suite's own proof: for each rule of the contract, a provider that breaks it fails a case of that rule.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::collections::BTreeSet;

use futures::{StreamExt as _, stream};
use provider_conformance::contract;
use provider_mock::breach;
use serde_json::Value;
use support::{Mock, scenario};

/// Variants that break no rule.
const LEGAL: [(&str, &str); 1] = [("batch-keys", "reordered")];

/// Bugs that real providers have had, and the case that catches each, as in `docs/conformance.md`.
const BUGS: [(&str, &str, &str); 87] = [
    ("built-as-asked", "ports", "BUILT-01"),
    ("built-as-asked", "node-ports", "BUILT-01"),
    ("built-as-asked", "backends", "BUILT-03"),
    ("built-as-asked", "source-ranges", "BUILT-04"),
    ("built-as-asked", "protocol", "BUILT-05"),
    ("built-as-asked", "family", "BUILT-06"),
    ("built-as-asked", "health-check", "BUILT-07"),
    ("built-as-asked", "second-family", "BUILT-11"),
    ("built-as-asked", "second-protocol", "BUILT-11"),
    ("built-as-asked", "many-ports", "BUILT-11"),
    ("built-as-asked", "high-ports", "BUILT-11"),
    ("built-as-asked", "ranges-of-ipv6", "BUILT-11"),
    ("built-as-asked", "health-check-moved", "BUILT-11"),
    ("built-as-asked", "health-check-kept", "BUILT-11"),
    ("built-as-asked", "affinity", "BUILT-11"),
    ("built-as-asked", "affinity", "BUILT-12"),
    ("built-as-asked", "requested-address", "BUILT-11"),
    ("built-as-asked", "no-node-ports", "BUILT-11"),
    ("built-as-asked", "second-family", "BUILT-12"),
    ("built-as-asked", "location-down", "TRBL-06"),
    ("built-as-asked", "still-open", "BUILT-04"),
    ("built-as-asked", "ranges-kept", "BUILT-04"),
    ("built-as-asked", "node-ports-kept", "BUILT-02"),
    ("built-as-asked", "unwanted-fields", "BUILT-03"),
    ("built-as-asked", "gone-attached", "BUILT-03"),
    ("built-as-asked", "gone-refused", "BUILT-03"),
    ("built-as-asked", "mixed", "BUILT-13"),
    ("ensure-keeps-working", "refused", "LB-17"),
    ("update-backends-only", "opens", "BUILT-12"),
    ("update-backends-only", "only-adds", "BUILT-09"),
    ("delete-by-key", "by-name", "BUILT-13"),
    ("delete-by-key", "by-cut-name", "BUILT-13"),
    ("delete-leaves-nothing", "firewall", "BUILT-12"),
    ("delete-leaves-nothing", "half-made", "IDEM-11"),
    ("delete-leaves-nothing", "swallowed", "DEL-11"),
    ("delete-leaves-nothing", "swallowed", "DEL-12"),
    ("delete-leaves-nothing", "swallowed", "DEL-13"),
    ("delete-leaves-nothing", "made-again", "IDEM-12"),
    ("ingress-required", "last", "LIST-05"),
    ("ensure-after-lost-answer", "half-made", "IDEM-10"),
    ("read-through", "absent", "MACH-08"),
    ("batch-keys", "exchanged", "BATCH-07"),
    ("batch-keys", "first-fifty", "BATCH-10"),
    ("batch-keys", "by-instance", "BATCH-08"),
    ("batch-keys", "addresses", "BATCH-07"),
    ("batch-keys", "first-two", "ROUTE-12"),
    ("route-echo-target", "first-two", "ROUTE-12"),
    ("error-order", "temporary", "TRBL-03"),
    ("error-order", "temporary", "TRBL-05"),
    ("page-walk-ends", "loses", "PAGE-01"),
    ("watch-every-key", "", "WATCH-11"),
    ("route-ownership", "deletes-all", "ROUTE-16"),
    ("update-every-item", "", "BUILT-08"),
    ("delete-by-key", "ignored", "BUILT-10"),
    ("absent-means-looked", "anything", "TRBL-01"),
    ("absent-means-looked", "by-name", "TRBL-02"),
    ("batched-at-cloud", "all", "CALL-01"),
    ("batched-at-cloud", "known", "CALL-01"),
    ("read-through", "for-ever", "CALL-02"),
    ("read-through", "seconds", "CALL-02"),
    ("read-through", "disguised", "CALL-03"),
    ("get-reads-through", "", "CALL-04"),
    ("deadline-honoured", "answered", "CALL-05"),
    ("deadline-honoured", "unanswered", "DEAD-02"),
    ("deadline-honoured", "threads", "DEAD-14"),
    ("delete-by-key", "after-restart", "DEL-09"),
    ("delete-leaves-nothing", "", "DEL-10"),
    ("applied-digest", "too-early", "LB-16"),
    ("applied-digest", "refused", "LB-12"),
    ("applied-digest", "refused", "LB-17"),
    ("cluster-owns-by-uid", "", "OWN-04"),
    ("message-limit", "", "SIZE-01"),
    ("mutation-finishes", "half-made", "IDEM-07"),
    ("mutation-finishes", "given-up", "IDEM-09"),
    ("lead-needed", "updates", "LEAD-13"),
    ("lead-needed", "routes", "LEAD-14"),
    ("lead-needed", "keys", "LEAD-15"),
    ("lead-ends", "work-goes-on", "LEAD-05"),
    ("lead-ends", "work-goes-on", "LEAD-06"),
    ("lead-ends", "finishes", "LEAD-05"),
    ("lead-ends", "finishes", "LEAD-06"),
    ("lead-ends", "finishes", "LEAD-09"),
    ("lead-ends", "counts-from-arrival", "LEAD-08"),
    ("lead-ends", "never-extended", "LEAD-10"),
    ("lead-ends", "cut-off", "LEAD-11"),
    ("lead-background", "once-made", "LEAD-07"),
    ("error-no-secret", "logged", "SEC-06"),
];

/// The number of concurrent mocks: mostly they wait.
const AT_ONCE: usize = 8;

/// Every rule, broken in every way.
fn breaches() -> Vec<(&'static str, &'static str)> {
    let tags: BTreeSet<_> = contract::tags().collect();
    let mut all = Vec::new();
    for breach in breach::all().filter(|breach| tags.contains(breach.name)) {
        let ways = if breach.choices.is_empty() { &[""] } else { breach.choices };
        all.extend(ways.iter().map(|way| (breach.name, *way)).filter(|breach| !LEGAL.contains(breach)));
    }
    all
}

/// Runs these cases while the mock has this fault. Returns the report's cases, and what the screen told.
async fn run(fault: &str, cases: &str) -> Result<(Vec<Value>, String), String> {
    let mock = Mock::start(&["--fault", fault]).await;
    let folder = mock.folder.path();
    let text = std::fs::read_to_string(scenario()).unwrap();
    let text = text.replace("settle: 6s", "settle: 800ms").replace("max-wait: 10s", "max-wait: 5s");
    let (quick, reports) = (folder.join("scenario.yaml"), folder.join("reports"));
    std::fs::write(&quick, text.replace("call-deadline: 5s", "call-deadline: 1500ms")).unwrap();
    let mut suite =
        mock.suite(&["run", "--endpoint", &mock.endpoint(), "--filter", cases, "--fail-fast", "--scenario"]);
    suite.arg(&quick).arg("--report-dir").arg(&reports).arg("--ledger-dir").arg(folder.join("ledger"));
    let run = suite.output().await.unwrap();
    let told = support::told(&run);
    let report =
        std::fs::read(reports.join("conformance.json")).map_err(|error| format!("{error}: {told}"))?;
    let report: Value = serde_json::from_slice(&report).unwrap();
    Ok((report["cases"].as_array().unwrap().clone(), told))
}

/// Runs these cases while the rule is broken this way; returns none, or what is wrong with the suite.
async fn shown(rule: &str, variant: &str, cases: &str) -> Result<(), String> {
    let (cases, told) = run(&format!("breach,rule={rule},variant={variant}"), cases).await?;
    let names_it =
        |case: &&Value| case["contract"].as_array().unwrap().iter().any(|cited| cited["rule"] == rule);
    let failed = cases.iter().filter(|case| case["verdict"]["is"] == "fail").filter(names_it).count();
    if failed == 0 {
        return Err(format!("no case failed:\n{told}"));
    }
    if !told.contains(&format!("contract: [R:{rule}]")) {
        return Err(format!("the screen does not name the rule:\n{told}"));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_rule_that_is_broken_fails_a_case_of_that_rule() {
    support::programs();
    let breaches = breaches();
    let rules: BTreeSet<_> = breaches.iter().map(|(rule, _)| *rule).collect();
    assert_eq!(rules, contract::tags().collect(), "the mock breaks every rule");
    let tried = |(rule, variant): (&'static str, &'static str)| async move {
        shown(rule, variant, rule).await.err().map(|why| format!("{rule}/{variant}: {why}"))
    };
    let seen: Vec<_> = stream::iter(breaches).map(tried).buffer_unordered(AT_ONCE).collect().await;
    let unseen: Vec<_> = seen.into_iter().flatten().collect();
    assert!(unseen.is_empty(), "{} breaches are not seen:\n\n{}", unseen.len(), unseen.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_bug_is_caught_by_the_case_that_is_said_to() {
    support::programs();
    let tried = |(rule, variant, case): (&'static str, &'static str, &'static str)| async move {
        // A log contains what other cases made the provider do.
        let cases = if case == "SEC-06" { "LB-02,SEC-06" } else { case };
        shown(rule, variant, cases).await.err().map(|why| format!("{rule}/{variant}, {case}: {why}"))
    };
    let seen: Vec<_> = stream::iter(BUGS).map(tried).buffer_unordered(AT_ONCE).collect().await;
    let unseen: Vec<_> = seen.into_iter().flatten().collect();
    assert!(unseen.is_empty(), "{} bugs are not caught:\n\n{}", unseen.len(), unseen.join("\n\n"));
}

/// A rule about every answer is not only of the case that is about it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_is_broken_in_passing_fails_the_case_that_saw_it() {
    support::programs();
    for (rule, method, case) in [
        ("provider-id-prefix", "ListInstances", "PAGE-01"),
        ("ingress-valid", "ListLoadBalancers", "DEL-06"),
        ("annotation-prefix", "EnsureLoadBalancer", "REV-02"),
        // It ends as not run.
        ("provider-id-prefix", "BatchGetInstances", "LIST-06"),
    ] {
        let (cases, told) = run(&format!("breach,rule={rule},method={method}"), case).await.unwrap();
        let verdict = &cases[0]["verdict"];
        assert_eq!(verdict["is"], "fail", "{rule}: {told}");
        assert!(verdict.to_string().contains(&format!("of {method} [R:{rule}]")), "{verdict}");
    }
}

/// Not only STALE_LEADER ends an Ensure whose leader leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ensure_that_fails_while_its_leader_leads_fails_the_case() {
    support::programs();
    for case in ["LEAD-11", "LEAD-12"] {
        let broken = "error,reason=INTERNAL_ERROR,method=EnsureLoadBalancer";
        let (cases, told) = run(broken, case).await.unwrap();
        assert_eq!(cases[0]["verdict"]["is"], "fail", "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_case_whose_balancer_cannot_be_deleted_fails() {
    support::programs();
    let busy = "error,reason=CONCURRENT_OPERATION,method=DeleteLoadBalancer";
    let (cases, told) = run(busy, "LB-02").await.unwrap();
    assert_eq!(cases[0]["verdict"]["is"], "fail", "{told}");
    assert!(cases[0]["verdict"]["seen"].as_str().unwrap().contains("CONCURRENT_OPERATION"), "{told}");
}
