//! An operator of a cluster of machines: types at a machine of the control plane what `docs/operate.md` says.
//!
//! In: the page, the images that `deploy/images/build` made, the real Helm. Out: what the commands print. Only in a room
//! (see [`test_cluster::machines`]), after [`prepare`].

use std::{
    fs,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use test_cluster::{
    Cloud, Process,
    machines::{Machines, MachinesOptions, SWITCH, in_a_room},
    wait,
};

use super::Helm;

const PAGE: &str = include_str!("../../../../docs/operate.md");
const WEB: &str = include_str!("web.yaml");
/// The Helm release, as the page names it.
pub const RELEASE: &str = "cloud-controller-manager";

/// What needs the network, or a compiler: once, since another test's machines read what it writes.
pub fn prepare() -> Result<()> {
    static PREPARED: Mutex<bool> = Mutex::new(false);
    let mut is_prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    if *is_prepared {
        return Ok(());
    }
    Helm::built()?;
    test_cluster::program("ccmctl")?;
    // `dist` would take a quarter of an hour.
    let build = programs::root().join("deploy/images/build");
    let status = programs::builder(build).env("PROFILE", "dev").status()?;
    ensure!(status.success(), "the images cannot be built ({status})");
    *is_prepared = true;
    Ok(())
}

/// Runs a test with an operator, in a room. `test` is its name, `prepare` what it needs from outside.
pub fn on_machines(
    test: &str,
    options: MachinesOptions,
    prepare: impl FnOnce() -> Result<()>,
    body: impl AsyncFnOnce(Operator) -> Result<()>,
) -> Result<()> {
    let again = ["--exact", test, "--ignored", "--nocapture"];
    in_a_room(&again, prepare, async || body(Operator::start(options).await?).await)
}

/// What an operator types to install or upgrade the chart with `values.yaml`.
pub fn helm(verb: &str) -> String {
    format!("helm {verb} {RELEASE} deploy/chart/ccm-host --namespace kube-system --values values.yaml")
}

/// Sits at a machine of the control plane, in a folder with the checkout's files.
#[expect(missing_debug_implementations, reason = "kube's client, in the cluster, has none")]
pub struct Operator {
    /// The cluster.
    pub machines: Machines,
    /// Where commands are typed.
    pub folder: PathBuf,
    /// At which machine, of all.
    pub seat: usize,
}

impl Operator {
    /// Starts a cluster, and sits at its first machine.
    pub async fn start(options: MachinesOptions) -> Result<Self> {
        let machines = options.start().await?;
        let folder = machines.control_plane.dir().join("home");
        fs::create_dir(&folder)?;
        for name in ["deploy", "target"] {
            let there = if name == "target" { programs::target() } else { programs::root().join(name) };
            std::os::unix::fs::symlink(there, folder.join(name))?;
        }
        Ok(Self { machines, folder, seat: 0 })
    }

    /// Types commands, and returns what they print.
    pub fn types(&self, commands: &str) -> Result<String> {
        self.types_at(self.seat, commands)
    }

    fn types_at(&self, seat: usize, commands: &str) -> Result<String> {
        let machine = self.machines.all().get(seat).context("no machine")?;
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

    /// Writes a file in the folder.
    pub fn writes(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.folder.join(name), text)?)
    }

    /// Objects, as `kubectl get` shows them.
    pub fn sees(&self, what: &str) -> Result<Vec<Value>> {
        let list: Value = serde_json::from_str(&self.types(&format!("kubectl get {what} -o json"))?)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// The pods that are ready, with the host's arguments.
    pub fn ready_hosts(&self) -> Result<Vec<String>> {
        let pods = self.sees("pods -n kube-system -l app.kubernetes.io/name=cloud-controller-manager")?;
        let is_ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array();
            let mut all = conditions.into_iter().flatten();
            pod["metadata"]["deletionTimestamp"].is_null()
                && all.any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        Ok(pods.iter().filter(is_ready).map(|pod| pod["spec"]["containers"][0]["args"].to_string()).collect())
    }

    /// Waits until a pod of the host is ready that has this among its arguments.
    pub async fn waits_for_host(&self, with: &str) -> Result<()> {
        wait::until(&format!("a ready host with {with}"), async || {
            Ok(self.ready_hosts()?.iter().any(|arguments| arguments.contains(with)).then_some(()))
        })
        .await
        .with_context(|| {
            self.types("kubectl -n kube-system get pods -o wide; kubectl get events -A | tail")
                .unwrap_or_default()
        })
    }

    /// Loads the images into each machine of the control plane, as the page says.
    pub fn loads_images(&self) -> Result<()> {
        let (_, images) = blocks("Install")?.remove(0);
        let machines = self.machines.all().iter().enumerate();
        for (seat, _) in machines.filter(|(_, machine)| machine.name.starts_with("control-plane")) {
            self.types_at(seat, &images)?;
        }
        Ok(())
    }

    /// Installs the chart with a mock that is not in the cluster: it is the router in front of the machines, and carries
    /// the traffic of its balancers. `more` are values, which replace those of the same name.
    pub async fn installs_with_a_cloud_outside(&self, more: &Value) -> Result<(Process, Cloud)> {
        self.installs_without_its_cloud(more)?;
        let cloud = self.starts_the_cloud().await?;
        self.waits_for_the_rollout()?;
        self.waits_for_provider_ids()?;
        Ok(cloud)
    }

    /// Waits until every pod of the chart's DaemonSet is up to date and ready.
    pub fn waits_for_the_rollout(&self) -> Result<()> {
        self.types(&format!("kubectl -n kube-system rollout status daemonset/{RELEASE} --timeout=2m"))
            .map(drop)
    }

    /// Waits until every node is initialised.
    pub fn waits_for_provider_ids(&self) -> Result<()> {
        self.types("kubectl wait node --all --for=jsonpath='{.spec.providerID}' --timeout=60s").map(drop)
    }

    /// Makes the certificate by which the host and the mock outside know each other.
    pub fn identifies_the_cloud(&self) -> Result<()> {
        let key = rcgen::KeyPair::generate()?;
        let certificate = rcgen::CertificateParams::new(vec![SWITCH.to_string()])?.self_signed(&key)?;
        for (name, pem) in [("tls.crt", certificate.pem()), ("tls.key", key.serialize_pem())] {
            self.writes(name, &pem)?;
        }
        Ok(())
    }

    /// Installs the chart for a mock outside, before there is one.
    pub fn installs_without_its_cloud(&self, more: &Value) -> Result<()> {
        self.identifies_the_cloud()?;
        let mut values = json!({
            "image": { "repository": "localhost/ccm-host", "tag": env!("CARGO_PKG_VERSION") },
            // By default no node goes that is younger than five minutes.
            "extraArgs": { "node-deletion-grace": "1s" },
            "providers": { "mock": { "endpoint": format!("https://{SWITCH}:8443"), "tlsSecretName": "mock" } },
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            values[name] = value.clone();
        }
        self.writes("values.yaml", &values.to_string())?;
        self.loads_images()?;
        self.types(&format!(
            "kubectl -n kube-system create secret generic mock \
             --from-file=ca.crt=tls.crt --from-file=tls.crt --from-file=tls.key
             {}",
            helm("install")
        ))?;
        Ok(())
    }

    /// Starts the mock outside, with an instance for each machine.
    pub async fn starts_the_cloud(&self) -> Result<(Process, Cloud)> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let flags = [
            format!("--endpoint=tcp://{SWITCH}:8443"),
            format!("--tls-cert-file={}", file("tls.crt")),
            format!("--tls-key-file={}", file("tls.key")),
            format!("--tls-client-ca-file={}", file("tls.crt")),
            "--admin-address=127.0.0.1:0".to_owned(),
            format!("--admin-address-file={}", file("door")),
            "--carry-traffic".to_owned(),
        ];
        let program = programs::target().join("images/provider-mock");
        let process = Process::start("provider-mock", &program, &flags, &[], &self.folder.join("mock.log"))?;
        let cloud =
            wait::until("the door of the cloud", async || Ok(Cloud::behind(&self.folder.join("door")).ok()))
                .await
                .with_context(|| process.tail())?;
        for machine in self.machines.all() {
            cloud.create_instance(&machine.name, "zone-a").await?;
            cloud.set_internal_ip(&machine.name, &machine.address.to_string()).await?;
        }
        Ok((process, cloud))
    }

    /// Makes two pods that answer clients, on different machines, and a Service for them, and returns its address.
    pub fn serves_web(&self) -> Result<String> {
        self.writes("web.yaml", WEB)?;
        self.types(
            "kubectl apply -f web.yaml
             kubectl rollout status deployment/web --timeout=60s
             kubectl wait service web --for=jsonpath='{.status.loadBalancer.ingress}' --timeout=60s",
        )?;
        self.types("kubectl get service web -o jsonpath='{.status.loadBalancer.ingress[0].ip}'")
    }

    /// Cuts a machine off, and terminates its instance.
    pub async fn loses(&self, machine: &str, cloud: &Cloud) -> Result<()> {
        let all = self.machines.all();
        let lost =
            all.iter().find(|one| one.name == machine).with_context(|| format!("no machine {machine}"))?;
        self.machines.cut_off(lost)?;
        cloud.terminate_instance(machine).await
    }

    /// Waits until there is no Node of this name.
    pub async fn waits_for_the_end_of(&self, node: &str) -> Result<()> {
        wait::until(&format!("the end of {node}"), async || {
            let nodes = self.sees("nodes")?;
            Ok(nodes.iter().all(|one| one["metadata"]["name"] != node).then_some(()))
        })
        .await
    }

    /// What a client outside reads from the Service, if it is answered.
    pub fn asks(&self, address: &str) -> Option<String> {
        let url = format!("http://{address}/cgi-bin/who");
        let curl = self.machines.outside("curl").args(["--silent", "--max-time", "2", &url]).output().ok()?;
        curl.status.success().then(|| String::from_utf8_lossy(&curl.stdout).trim().to_owned())
    }

    /// Waits until the answer is as wanted, and returns it.
    pub async fn is_answered(
        &self,
        address: &str,
        what: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let mut last = None;
        wait::until(&format!("an answer {what} at {address}"), async || {
            last = self.asks(address);
            Ok(last.clone().filter(|answer| wanted(answer)))
        })
        .await
        .with_context(|| format!("last: {last:?}"))
    }
}

/// The blocks of a section, each with its language, without the indentation of the list they stand in.
pub fn blocks(section: &str) -> Result<Vec<(&'static str, String)>> {
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
