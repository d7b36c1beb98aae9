//! The providers of AWS, and an emulated AWS, for their tests.
//!
//! [`Aws::start`] builds the Go module `providers/bridged-aws` and starts its emulator; [`Aws::provider`] is a
//! provider for a cluster. Tests query and change the cloud with the emulator's command, which answers in JSON.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use test_cluster::{Cluster, Process, ProviderUnderTest, go, services::load_balancer};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
};

const PUBLISHED: &str = "k8s.io/cloud-provider-aws/cmd/aws-cloud-controller-manager";

/// A running emulator, which ends when dropped.
#[derive(Debug)]
pub struct Aws {
    binaries: PathBuf,
    config: PathBuf,
    greeting: Greeting,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

#[derive(Debug, Deserialize)]
struct Greeting {
    environment: BTreeMap<String, String>,
    zones: Vec<String>,
}

/// Which provider of AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The published one, behind the bridge.
    Bridged,
    /// The one that is written for the contract, for nodes alone.
    Native,
    /// The same, for all Services, too.
    Balancing,
}

/// An instance.
#[derive(Debug, Clone, Deserialize)]
pub struct Instance {
    /// The instance's ID.
    pub id: String,
    /// The node name that its kubelet registers.
    pub node: String,
    /// Its availability zone.
    pub zone: String,
    /// Its private address.
    pub address: String,
}

/// A balancer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Balancer {
    /// `classic` or `network`.
    pub kind: String,
    /// Its DNS name.
    pub dns: String,
    /// Its listeners' ports, sorted.
    pub ports: Vec<u16>,
    /// The instances behind it, sorted.
    pub instances: Vec<String>,
}

/// A route to an instance.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Route {
    /// Its destination CIDR.
    pub destination: String,
    /// The instance.
    pub instance: String,
    /// `active` or `blackhole`.
    pub state: String,
}

/// A Service that wants a network balancer.
pub fn network(name: &str) -> Value {
    let mut service = load_balancer(name);
    service["metadata"]["annotations"] =
        json!({ "service.beta.kubernetes.io/aws-load-balancer-type": "nlb" });
    service
}

/// How many balancers the published manager has ensured since it had printed so many bytes.
pub fn ensured(published: &Process, since: usize) -> usize {
    published.output()[since..].matches("reason=\"EnsuredLoadBalancer\"").count()
}

/// How many Services the host has settled.
pub async fn settled(cluster: &Cluster) -> Result<usize> {
    let state: Value = serde_json::from_str(&cluster.host_get("/state").await?.1)?;
    let services = state["services"].as_array().context("services")?;
    Ok(services.iter().filter(|service| service["standing"] == "Settled").count())
}

impl Aws {
    /// An AWS without instances; the provider's cloud config is written to `folder`.
    pub async fn start(folder: &Path) -> Result<Self> {
        let binaries = tokio::task::spawn_blocking(binaries).await??;
        let config = folder.join("cloud.conf");
        let mut process = tokio::process::Command::new(binaries.join("aws-emulator"))
            .arg(&config)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the emulator of AWS")?;
        let stdin = process.stdin.take().context("stdin is a pipe")?;
        let mut stdout = BufReader::new(process.stdout.take().context("stdout is a pipe")?).lines();
        let greeting = answer(&mut stdout).await?;
        Ok(Self { binaries, config, greeting, stdin, stdout, _process: process })
    }

    /// A provider for this AWS: the published one behind the bridge, or `providers/aws`, which is a workspace of its own and
    /// must have been built.
    pub fn provider(&self, kind: Kind) -> ProviderUnderTest {
        let program = match kind {
            Kind::Bridged => self.binaries.join("bridged-aws"),
            Kind::Native | Kind::Balancing => std::env::var_os("PROVIDER_AWS").map_or_else(
                || {
                    Path::new(env!("CARGO_MANIFEST_DIR"))
                        .join("../../providers/aws/target/debug/provider-aws")
                },
                PathBuf::from,
            ),
        };
        let mut flags = vec![format!("--cloud-config={}", self.config.display())];
        if kind == Kind::Balancing {
            flags.push("--load-balancers=network".to_owned());
        }
        ProviderUnderTest {
            name: "aws".to_owned(),
            program,
            flags,
            environment: self.greeting.environment.clone().into_iter().collect(),
        }
    }

    /// Starts the published manager for the cluster.
    pub async fn published(&self, cluster: &Cluster) -> Result<Process> {
        let build = || go::built("providers/bridged-aws", PUBLISHED, "published-aws");
        let program = tokio::task::spawn_blocking(build).await??;
        let kubeconfig = cluster.control_plane.kubeconfig_for("published", &["system:masters"])?;
        let flags = [
            "--cloud-provider=aws".to_owned(),
            format!("--cloud-config={}", self.config.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--configure-cloud-routes=false".to_owned(),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            "--webhook-secure-port=0".to_owned(),
        ];
        let environment: Vec<_> = self.greeting.environment.clone().into_iter().collect();
        Process::start("published", &program, &flags, &environment, &cluster.folder().join("published.log"))
    }

    /// How many calls the cloud has had, by action.
    pub async fn calls(&mut self) -> Result<BTreeMap<String, u32>> {
        self.ask("calls").await
    }

    /// How many calls have changed something, by action.
    pub async fn changes(&mut self) -> Result<BTreeMap<String, u32>> {
        let mut calls = self.calls().await?;
        calls.retain(|action, _| !action.contains(":Describe"));
        Ok(calls)
    }

    /// Lets EC2 not know an instance that runs.
    pub async fn hide(&mut self, instance: &Instance) -> Result<()> {
        self.ask::<Value>(&format!("hide {}", instance.id)).await.map(drop)
    }

    /// The zones in which instances can run.
    pub fn zones(&self) -> &[String] {
        &self.greeting.zones
    }

    /// Runs an instance in the zone with this number.
    pub async fn launch(&mut self, zone: usize) -> Result<Instance> {
        let zone = self.zones()[zone].clone();
        self.ask(&format!("launch {zone}")).await
    }

    /// Runs so many instances in the zone with this number.
    pub async fn launch_many(&mut self, zone: usize, count: usize) -> Result<Vec<Instance>> {
        let zone = self.zones()[zone].clone();
        self.ask(&format!("launch {zone} {count}")).await
    }

    /// Stops an instance, which can be started again.
    pub async fn stop(&mut self, instance: &Instance) -> Result<()> {
        self.ask::<Value>(&format!("stop {}", instance.id)).await.map(drop)
    }

    /// Starts a stopped instance.
    pub async fn start_again(&mut self, instance: &Instance) -> Result<()> {
        self.ask::<Value>(&format!("start {}", instance.id)).await.map(drop)
    }

    /// Sets what happens to the provider's requests: `open`, `half` an answer, `nothing`, or a status code that refuses
    /// them.
    pub async fn door(&mut self, state: &str) -> Result<()> {
        self.ask::<Value>(&format!("door {state}")).await.map(drop)
    }

    /// Terminates an instance.
    pub async fn terminate(&mut self, instance: &Instance) -> Result<()> {
        self.ask::<Value>(&format!("terminate {}", instance.id)).await.map(drop)
    }

    /// Adds to the cloud config, which whoever starts next reads.
    pub fn configure(&self, setting: &str) -> Result<()> {
        let text = std::fs::read_to_string(&self.config)?;
        Ok(std::fs::write(&self.config, text.replacen("[Global]\n", &format!("[Global]\n{setting}\n"), 1))?)
    }

    /// Everything that AWS has for Services and nodes, each as one line.
    pub async fn left(&mut self) -> Result<Vec<String>> {
        self.ask("left").await
    }

    /// All balancers.
    pub async fn balancers(&mut self) -> Result<Vec<Balancer>> {
        self.ask("balancers").await
    }

    /// The routes to instances, even terminated ones.
    pub async fn routes(&mut self) -> Result<Vec<Route>> {
        self.ask("routes").await
    }

    async fn ask<T: DeserializeOwned>(&mut self, line: &str) -> Result<T> {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await?;
        answer(&mut self.stdout).await.with_context(|| format!("the emulator of AWS was told {line:?}"))
    }
}

async fn answer<T: DeserializeOwned>(stdout: &mut Lines<BufReader<ChildStdout>>) -> Result<T> {
    let line = stdout.next_line().await?.context("the emulator of AWS ended")?;
    let value: Value = serde_json::from_str(&line)?;
    if let Some(error) = value.get("error") {
        bail!("it answered: {error}");
    }
    serde_json::from_value(value).with_context(|| format!("it answered {line}"))
}

/// The directory of `bridged-aws` and `aws-emulator`, up to date. Runs Go once per process.
fn binaries() -> Result<PathBuf> {
    static BUILT: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    built.clone().map_err(anyhow::Error::msg)
}

fn build() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = target.canonicalize()?.join("bridged-aws");
    let status = Command::new("go")
        .args(["build", "-o"])
        .arg(format!("{}/", folder.display()))
        .args([".", "./cmd/aws-emulator"])
        .current_dir(root.join("providers/bridged-aws"))
        .status()
        .context("cannot run go to build the provider of AWS")?;
    if !status.success() {
        bail!("go could not build the provider of AWS ({status}); its output stands above");
    }
    Ok(folder)
}
