//! What a person does by the docs, on a cluster of machines: real kubelets, containers from our images, the real Helm.
//!
//! In: `docs/operate.md`, whose commands are typed as they stand. The cluster needs root and Debian's packages, and its
//! programs are built once, which takes minutes; `.ci/run` runs these tests where all that is.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result, ensure};
use deploy_tests::Helm;
use serde_json::{Value, json};
use test_cluster::{
    Process,
    machines::{INSIDE, Machines, MachinesOptions, in_a_room},
    wait,
};

const PAGE: &str = include_str!("../../../docs/operate.md");
const RELEASE: &str = "cloud-controller-manager";

/// Runs the body beside a cluster of one control plane machine and one worker.
fn on_machines(test: &str, body: impl AsyncFnOnce(Person) -> Result<()>) -> Result<()> {
    in_a_room(&["--exact", test, "--ignored", "--nocapture"], prepare, async || {
        body(Person::new(MachinesOptions::default().start().await?)?).await
    })
}

/// What needs the network, or a compiler: once, since another test's machines read what it writes.
fn prepare() -> Result<()> {
    static PREPARED: Mutex<bool> = Mutex::new(false);
    let mut is_prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    if *is_prepared {
        return Ok(());
    }
    Helm::built()?;
    test_cluster::program("ccmctl")?;
    // `dist` would take a quarter of an hour.
    let status = Command::new(programs::root().join("deploy/images/build")).env("PROFILE", "dev").status()?;
    ensure!(status.success(), "the images cannot be built ({status})");
    *is_prepared = true;
    Ok(())
}

/// An administrator who sits at a machine of the control plane, in a folder with the checkout's files.
struct Person {
    machines: Machines,
    folder: PathBuf,
}

impl Person {
    fn new(machines: Machines) -> Result<Self> {
        let folder = machines.control_plane.dir().join("home");
        fs::create_dir(&folder)?;
        for name in ["deploy", "target"] {
            let there = if name == "target" { programs::target() } else { programs::root().join(name) };
            std::os::unix::fs::symlink(there, folder.join(name))?;
        }
        Ok(Self { machines, folder })
    }

    /// Types commands, and returns what they print.
    fn types(&self, commands: &str) -> Result<String> {
        let machine = self.machines.all().first().context("no machine")?;
        let mut shell = self.machines.on(machine, "sh");
        let target = programs::target();
        let start = format!("cd {}; PATH={1}/go:{1}/debug:$PATH\n", self.folder.display(), target.display());
        let done = shell
            .args(["-euc", &format!("{start}{commands}")])
            .env("HOME", &self.folder)
            .output()
            .context("cannot run a shell on the machine")?;
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "{}: {commands}\n{said}{complaint}", done.status);
        Ok(said)
    }

    fn writes(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.folder.join(name), text)?)
    }

    /// Objects, as `kubectl get` shows them.
    fn sees(&self, what: &str) -> Result<Vec<Value>> {
        let list: Value = serde_json::from_str(&self.types(&format!("kubectl get {what} -o json"))?)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// The pods that are ready, with the host's arguments.
    fn ready_hosts(&self) -> Result<Vec<String>> {
        let pods = self.sees("pods -n kube-system -l app.kubernetes.io/name=cloud-controller-manager")?;
        let is_ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array();
            let mut all = conditions.into_iter().flatten();
            pod["metadata"]["deletionTimestamp"].is_null()
                && all.any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        Ok(pods.iter().filter(is_ready).map(|pod| pod["spec"]["containers"][0]["args"].to_string()).collect())
    }

    async fn waits_for_host(&self, with: &str) -> Result<()> {
        wait::until(&format!("a ready host with {with}"), async || {
            Ok(self.ready_hosts()?.iter().any(|arguments| arguments.contains(with)).then_some(()))
        })
        .await
        .with_context(|| {
            self.types("kubectl -n kube-system get pods -o wide; kubectl get events -A | tail")
                .unwrap_or_default()
        })
    }
}

/// The blocks of a section, each with its language, without the indentation of the list they stand in.
fn blocks(section: &str) -> Result<Vec<(&'static str, String)>> {
    let (_, rest) = PAGE.split_once(&format!("\n## {section}\n")).with_context(|| format!("no {section}"))?;
    let section = rest.split("\n## ").next().unwrap_or_default();
    let mut blocks = Vec::new();
    let mut lines = section.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        let indent = line.len() - line.trim_start().len();
        let inner = lines.by_ref().take_while(|line| line.trim() != "```");
        let text: Vec<&str> = inner.map(|line| line.get(indent..).unwrap_or_default()).collect();
        blocks.push((language, text.join("\n")));
    }
    ensure!(!blocks.is_empty(), "no block in {section}");
    Ok(blocks)
}

/// From nothing to a Service with an address, an upgrade, one that fails, and the removal.
#[test]
#[ignore = "needs root, packages and minutes; .ci/run runs it"]
fn an_operator_follows_the_page() -> Result<()> {
    on_machines("an_operator_follows_the_page", async |person| {
        for (language, text) in blocks("Install")? {
            // A registry that the nodes can reach is the reader's; here the images lie on the nodes.
            let text = text.replace("registry.example/", "localhost/");
            if language == "yaml" {
                person.writes("values.yaml", &text)?;
            } else {
                eprintln!("$ {text}\n{}", person.types(&text)?);
            }
        }
        initialised(&person)?;
        let log = person
            .types(&format!("kubectl -n kube-system logs daemonset/{RELEASE} -c ccm-host --tail=-1"))?;
        ensure!(log.contains("leads") && log.contains("started"), "{log}");
        let services = person.sees("services")?;
        ensure!(
            services.iter().any(|one| one["status"]["loadBalancer"]["ingress"][0]["ip"].is_string()),
            "{services:#?}"
        );
        let explained = person.types("ccmctl explain node worker-1; ccmctl provider status")?;
        ensure!(explained.contains("worker-1"), "{explained}");

        let (_, health) = blocks("What health says")?.remove(0);
        let health =
            person.types(&format!("{}\nkill $!", health.replace("POD", &format!("daemonset/{RELEASE}"))))?;
        ensure!(health.contains("readyz check passed"), "{health}");

        let values = fs::read_to_string(person.folder.join("values.yaml"))?;
        person.writes("values.yaml", &format!("{values}\nlogVerbosity: 3\n"))?;
        let (_, upgrade) = blocks("Upgrade")?.remove(0);
        person.types(&upgrade)?;
        person.waits_for_host("--v=3").await?;

        let hopeless = upgrade.replace("--values", "--set image.tag=9.9.9 --values").replace("3m", "10s");
        let said = person.types(&hopeless)?;
        ensure!(said.contains("Rollback was a success"), "{said}");
        person.waits_for_host("--v=3").await?;

        let (_, removal) = blocks("Remove")?.remove(0);
        person.types(&removal)?;
        let pods = "kubectl -n kube-system get pods -o name";
        wait::until("no pod", async || Ok(person.types(pods)?.is_empty().then_some(()))).await?;
        initialised(&person)?;
        let service = person.types("kubectl get service web -o json")?;
        ensure!(service.contains("load-balancer-cleanup") && service.contains("192.0.2."), "{service}");
        Ok(())
    })
}

fn initialised(person: &Person) -> Result<()> {
    for node in person.sees("nodes")? {
        let taints = node["spec"]["taints"].to_string();
        let has_id = node["spec"]["providerID"].as_str().is_some_and(|id| id.starts_with("mock://"));
        ensure!(has_id && !taints.contains("uninitialized"), "{node:#}");
    }
    Ok(())
}

/// One replica runs, the other finds no free node: an upgrade must not wait for that one.
#[test]
#[ignore = "needs root, packages and minutes; .ci/run runs it"]
fn a_deployment_of_two_replicas_for_one_node_can_be_upgraded() -> Result<()> {
    on_machines("a_deployment_of_two_replicas_for_one_node_can_be_upgraded", async |person| {
        let (_, images) = blocks("Install")?.remove(0);
        person.types(&images)?;
        let image = |name: &str| json!({ "repository": format!("localhost/{name}"), "tag": "0.1.0" });
        let values = json!({
            "kind": "Deployment", "replicaCount": 2, "image": image("ccm-host"),
            "providers": { "mock": { "image": image("provider-mock") } },
        });
        person.writes("values.yaml", &values.to_string())?;
        let helm = |verb: &str| {
            let chart = Path::new("deploy/chart/ccm-host").display();
            format!("helm {verb} {RELEASE} {chart} --namespace kube-system --values values.yaml")
        };
        person.types(&helm("install"))?;
        person.waits_for_host("--v=2").await?;
        person.types(&format!("{} --set logVerbosity=3", helm("upgrade")))?;
        person.waits_for_host("--v=3").await?;
        ensure!(person.ready_hosts()?.len() == 1, "one node was meant to have room for one");
        Ok(())
    })
}

/// Also of one whose program was killed: the kernel ends the room.
#[tokio::test]
#[ignore = "needs root, packages and minutes; .ci/run runs it"]
async fn nothing_is_left_of_a_cluster_that_was_killed() -> Result<()> {
    tokio::task::spawn_blocking(test_cluster::machines::build).await??;
    let program = test_cluster::program("machines")?;
    let log = tempfile::NamedTempFile::new()?;
    let mut cluster =
        Process::start("machines", &program, &["1".to_owned(), "0".to_owned()], &[], log.path())?;
    let marker = format!("{INSIDE}={}", cluster.id());
    wait::until("a machine", async || Ok(cluster.output().contains("nsenter").then_some(())))
        .await
        .with_context(|| cluster.tail())?;
    ensure!(processes(&marker)? > 5, "a cluster has more processes");
    cluster.kill()?;
    wait::until("the end of the last process", async || Ok((processes(&marker)? == 0).then_some(()))).await
}

/// How many processes have this in their environment.
fn processes(marker: &str) -> Result<usize> {
    let all = fs::read_dir("/proc")?.flatten();
    // Some end while they are looked at.
    let environments = all.filter_map(|process| fs::read(process.path().join("environ")).ok());
    Ok(environments.filter(|one| one.split(|byte| *byte == 0).any(|part| part == marker.as_bytes())).count())
}
