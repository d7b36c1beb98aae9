//! Kubernetes' own e2e suite, as far as it looks at load balancers: its specs in a cluster of machines, with a mock that
//! carries traffic, against the chart, and against upstream's controller manager over the same mock.
//!
//! In: `e2e.test` and agnhost of the pinned Kubernetes. Out: all specs pass; with `UPDATE_DOCS=1`, docs/kubernetes-e2e.md
//! gets what they said. Each takes a quarter of an hour, so `.ci/run` leaves them out.
#![expect(clippy::print_stdout, reason = "says what the specs said, to whoever asks with --nocapture")]

use std::{env, fmt::Write as _, fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, ensure};
use control_plane::Assets;
use e2e::deploy::operator::{Operator, on_machines, prepare};
use serde_json::{Value, json};
use test_cluster::{
    Process, go,
    machines::{MachinesOptions, SWITCH},
};

/// All of load balancers, also under the policy Local, and the one of a Service with two protocols.
const FOCUS: &str = "LoadBalancers|same port and different protocol";
/// Most specs wait more than they compute.
const SIDE_BY_SIDE: &str = "6";
const AGNHOST: &str = include_str!("kubernetes_e2e/agnhost.sh");

/// Against the chart.
#[test]
#[ignore = "needs root, packages and a quarter of an hour"]
fn specs_of_load_balancers_pass() -> Result<()> {
    on_machines(
        "specs_of_load_balancers_pass",
        MachinesOptions::of_workers(2),
        prepare_specs,
        async |operator| {
            let _cloud = operator.installs_with_a_cloud_outside(&json!({})).await?;
            pass(&operator, "ccm-host")
        },
    )
}

/// Against upstream's manager, for comparison.
#[test]
#[ignore = "needs root, packages and a quarter of an hour"]
fn specs_of_load_balancers_pass_with_upstreams_manager() -> Result<()> {
    on_machines(
        "specs_of_load_balancers_pass_with_upstreams_manager",
        MachinesOptions::of_workers(2),
        prepare_specs,
        async |operator| {
            operator.identifies_the_cloud()?;
            let _cloud = operator.starts_the_cloud().await?;
            let kubeconfig = operator.machines.control_plane.admin_kubeconfig();
            let flags = [
                "--cloud-provider=mock",
                "--leader-elect=false",
                "--secure-port=0",
                "--configure-cloud-routes=false",
            ];
            let mut flags: Vec<String> = flags.map(str::to_owned).to_vec();
            flags.push(format!("--kubeconfig={}", kubeconfig.display()));
            let environment = [
                ("MOCK_ADDRESS".to_owned(), format!("{SWITCH}:8443")),
                ("MOCK_IDENTITY".to_owned(), operator.folder.join("tls").display().to_string()),
            ];
            let log = operator.folder.join("upstream.log");
            let _manager = Process::start("upstream", &upstream()?, &flags, &environment, &log)?;
            operator.waits_for_provider_ids()?;
            pass(&operator, "upstream")
        },
    )
}

fn prepare_specs() -> Result<()> {
    prepare()?;
    make_agnhost()?;
    go::built("tests/bench/peer", "./mock", "upstream-over-mock").map(drop)
}

/// Built before, since the room has no network.
fn upstream() -> Result<PathBuf> {
    let program = programs::target().join("go/upstream-over-mock");
    ensure!(program.exists(), "{} is not built", program.display());
    Ok(program)
}

/// Every spec passes; the page gets the results if it is asked for.
fn pass(operator: &Operator, manager: &str) -> Result<()> {
    let mut specs = specs(operator)?;
    specs.sort_by(|one, other| one.name.cmp(&other.name));
    let mut table = "| Spec | Result | Seconds |\n|---|---|---|\n".to_owned();
    for Spec { name, state, seconds } in &specs {
        writeln!(table, "| {} | {state} | {seconds:.0} |", name.replace('|', "\\|"))?;
    }
    if env::var_os("UPDATE_DOCS").is_some() {
        let page = programs::root().join("docs/kubernetes-e2e.md");
        let text = fs::read_to_string(&page)?;
        let (begin, end) = (format!("<!-- {manager} -->\n"), format!("<!-- end of {manager} -->\n"));
        let (before, rest) = text.split_once(&begin).with_context(|| format!("no place for {manager}"))?;
        let (_, after) = rest.split_once(&end).with_context(|| format!("no {end}"))?;
        fs::write(&page, format!("{before}{begin}{table}{end}{after}"))?;
    }
    println!("{table}");
    let failed: Vec<&Spec> = specs.iter().filter(|spec| spec.state != "passed").collect();
    let least = if env::var_os("FOCUS").is_some() { 1 } else { SPECS };
    ensure!(failed.is_empty(), "these specs failed: {failed:#?}");
    ensure!(specs.len() >= least, "only {} specs ran, not {least}", specs.len());
    Ok(())
}

/// As many as there are in the pinned Kubernetes: fewer, and [`FOCUS`] has lost some. A run with another one may be of any.
const SPECS: usize = 19;

/// What a spec said.
#[derive(Debug)]
struct Spec {
    name: String,
    state: String,
    seconds: f64,
}

/// Runs the specs, from the client outside.
fn specs(operator: &Operator) -> Result<Vec<Spec>> {
    let archive = agnhost();
    for machine in operator.machines.all() {
        let load = ["--namespace", "k8s.io", "images", "import"];
        let status = operator.machines.on(machine, "ctr").args(load).arg(&archive).status()?;
        ensure!(status.success(), "{} does not load {} ({status})", machine.name, archive.display());
    }
    let programs = Assets::e2e()?;
    let focus = env::var("FOCUS").unwrap_or_else(|_| FOCUS.to_owned());
    let report = operator.folder.join("report.json");
    let mut ginkgo = operator.machines.outside(&programs.join("ginkgo").display().to_string());
    ginkgo
        .args(["run", "--no-color", "--procs", SIDE_BY_SIDE, "--focus", &focus, "--timeout", "40m"])
        .arg(format!("--json-report={}", report.display()))
        .arg(programs.join("e2e.test"))
        .args(["--", "--provider=skeleton", "--allowed-not-ready-nodes=-1", "--num-nodes=2"])
        .arg(format!("--kubeconfig={}", operator.machines.control_plane.admin_kubeconfig().display()))
        .current_dir(&operator.folder)
        // It runs kubectl.
        .env("PATH", format!("{}:{}", Assets::machines()?.display(), env::var("PATH").unwrap_or_default()))
        .env("HOME", &operator.folder);
    // What it says of failures stands above the verdict.
    let status = ginkgo.status().context("cannot run ginkgo")?;
    let report = fs::read_to_string(&report).with_context(|| format!("{status}, and there is no report"))?;
    let report: Value = serde_json::from_str(&report)?;
    let all = report[0]["SpecReports"].as_array().context("a report without specs")?;
    // Those outside of the focus are skipped without having begun.
    let chosen = all.iter().filter(|spec| spec["LeafNodeType"] == "It" && spec["NumAttempts"] != 0);
    Ok(chosen.map(spec).collect())
}

fn spec(report: &Value) -> Spec {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let outer = report["ContainerHierarchyTexts"].as_array().into_iter().flatten();
    let words: Vec<String> = outer.chain([&report["LeafNodeText"]]).map(text).collect();
    Spec {
        name: words.join(" "),
        state: [&report["State"], &report["Failure"]["Message"]].map(text).join(" ").trim().to_owned(),
        seconds: report["RunTime"].as_f64().unwrap_or_default() / 1e9,
    }
}

/// The archive of the image of the specs' pods.
fn agnhost() -> PathBuf {
    programs::target().join("images/agnhost.tar")
}

fn make_agnhost() -> Result<()> {
    let programs = Assets::e2e()?;
    let listed = Command::new(programs.join("e2e.test")).arg("--list-images").output()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    // They also name an older one, for what was upgraded, in any order.
    let names = listed.lines().map(str::trim).filter(|name| name.contains("/e2e-test-images/agnhost:"));
    let version = |name: &&str| {
        let (_, tag) = name.rsplit_once(':')?;
        tag.split('.').map(|part| part.parse::<u32>().ok()).collect::<Option<Vec<_>>>()
    };
    let name = names.max_by_key(version).context("the specs name no agnhost")?;
    let script = ["-euc", AGNHOST, "agnhost", name];
    let status = Command::new("sh").args(script).arg(programs.join("agnhost")).arg(agnhost()).status()?;
    ensure!(status.success(), "the image agnhost cannot be made ({status})");
    Ok(())
}
