//! Whatever happens to a run, everything it created is deleted.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{path::PathBuf, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use support::{Mock, PATIENCE, scenario, told};
use tokio::process::Child;

/// A run in the middle of a case that has created a balancer and waits for it.
async fn in_mid_case(mock: &Mock) -> (Child, PathBuf) {
    let ledgers = mock.folder.path().join("ledgers");
    let mut suite =
        mock.suite(&["run", "--endpoint", &mock.endpoint(), "--filter", "LB-01,LB-02", "--scenario"]);
    suite.arg(scenario()).arg("--ledger-dir").arg(&ledgers);
    let child =
        suite.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let made = async {
        while mock.admin.balancers().await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, made).await.expect("a balancer is begun");
    (child, ledgers)
}

/// What a run leaves that is killed in such a case: its ledgers, and its id.
async fn killed_in_mid_case(mock: &Mock) -> (PathBuf, String) {
    let (child, folder) = in_mid_case(mock).await;
    send(&child, Signal::KILL);
    child.wait_with_output().await.unwrap();
    let ledger = ledgers(&folder).pop().expect("the ledger outlives the run");
    let run = ledger.file_stem().unwrap().to_str().unwrap().to_owned();
    (folder, run)
}

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

fn ledgers(folder: &PathBuf) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).collect()
}

#[tokio::test]
async fn ctrl_c_takes_everything_back() {
    let mock = Mock::start(&["--provisioning-delay", "1h"]).await;
    let (child, folder) = in_mid_case(&mock).await;
    send(&child, Signal::INT);
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", told(&output));
    assert_eq!(mock.admin.balancers().await.unwrap(), []);
    assert_eq!(ledgers(&folder), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn what_a_killed_run_left_is_swept() {
    let mock = Mock::start(&["--provisioning-delay", "1h"]).await;
    let (folder, run) = killed_in_mid_case(&mock).await;
    assert_eq!(mock.admin.balancers().await.unwrap().len(), 1, "nobody cleaned up");
    let mut sweep = mock.suite(&["sweep", "--run-id", &run, "--ledger-dir"]);
    let output = sweep.arg(&folder).output().await.unwrap();
    assert!(output.status.success(), "{}", told(&output));
    assert_eq!(mock.admin.balancers().await.unwrap(), []);
    assert_eq!(ledgers(&folder), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_run_that_was_cut_off_goes_on() {
    let mock = Mock::start(&["--provisioning-delay", "1h"]).await;
    let (folder, run) = killed_in_mid_case(&mock).await;
    let resume = async |id: &str| {
        let mut suite = mock.suite(&["run", "--endpoint", &mock.endpoint(), "--resume", id, "--scenario"]);
        suite.arg(scenario()).args(["--filter", "LB-01,LB-03", "--ledger-dir"]).arg(&folder);
        suite.arg("--report-dir").arg(mock.folder.path().join("reports")).output().await.unwrap()
    };
    let unknown = resume("nobody").await;
    assert_eq!(unknown.status.code(), Some(2));
    assert!(told(&unknown).contains("run nobody has ended, or another --ledger-dir"), "{}", told(&unknown));
    mock.admin.reset_calls().await.unwrap();
    let output = resume(&run).await;
    // Balancers take an hour, so the second case is not run.
    assert_eq!(output.status.code(), Some(4), "{}", told(&output));
    let report = std::fs::read(mock.folder.path().join("reports/conformance.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["resumed"], run);
    assert_eq!(
        (&report["cases"][0]["id"], &report["cases"][0]["verdict"]["is"]),
        (&"LB-01".into(), &"pass".into())
    );
    let calls = mock.admin.call_summary().await.unwrap();
    assert!(!calls.methods.contains_key("GetLoadBalancer"), "what has passed is not tried again: {calls:?}");
    assert_eq!(mock.admin.balancers().await.unwrap(), [], "what the first run left is gone");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

#[tokio::test]
async fn a_case_that_needs_more_balancers_than_may_stand_at_once_is_not_run() {
    let mock = Mock::start(&[]).await;
    let mut suite = mock.suite(&["run", "--endpoint", &mock.endpoint(), "--max-balancers", "1"]);
    let output = suite.args(["--filter", "LB-03,REV-04,LB-01"]).output().await.unwrap();
    let told = told(&output);
    assert_eq!(output.status.code(), Some(4), "{told}");
    assert!(told.contains("pass LB-01") && told.contains("pass LB-03"), "{told}");
    assert!(
        told.contains("not-run REV-04") && told.contains("more than 1 balancers at once (--max-balancers)"),
        "{told}"
    );
}

#[tokio::test]
async fn the_bench_measures_and_leaves_nothing() {
    let mock = Mock::start(&[]).await;
    let output = mock
        .suite(&["bench", "--endpoint", &mock.endpoint(), "--calls", "5", "--json"])
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = rows.as_array().unwrap();
    assert!(rows.len() >= 9 && rows.iter().all(|row| row["failed"] == 0 && row["calls"] == 5), "{rows:?}");
    assert_eq!(mock.admin.balancers().await.unwrap(), []);
}

/// Runs these cases with a hook that fails.
async fn run_with_broken(mock: &Mock, hook: &str, cases: &str) -> (Option<i32>, String) {
    let whole = std::fs::read_to_string(scenario()).unwrap();
    let block = format!("  {hook}: |\n");
    let broken = whole.replace(&block, &format!("{block}    exit 7\n"));
    let path = mock.folder.path().join("broken.yaml");
    std::fs::write(&path, broken).unwrap();
    let mut suite = mock.suite(&["run", "--endpoint", &mock.endpoint(), "--filter", cases, "--scenario"]);
    let output = suite.arg(path).output().await.unwrap();
    (output.status.code(), told(&output))
}

#[tokio::test]
async fn what_is_left_behind_is_not_conformant() {
    let mock = Mock::start(&[]).await;
    let (code, told) = run_with_broken(&mock, "terminate-instance", "INST-01").await;
    assert!(told.contains("pass INST-01") && told.contains("left behind: hook terminate-instance"), "{told}");
    assert_eq!(code, Some(4), "{told}");
}

#[tokio::test]
async fn a_cloud_that_stays_disturbed_ends_the_run() {
    let mock = Mock::start(&[]).await;
    let (code, told) = run_with_broken(&mock, "restore-cloud", "TRBL-01,VOL-01").await;
    let why = "the cloud is still disturbed since TRBL-01: the hook failed that ends it";
    assert!(told.contains("not-run VOL-01") && told.contains(why), "{told}");
    assert_eq!(code, Some(4), "{told}");
}
