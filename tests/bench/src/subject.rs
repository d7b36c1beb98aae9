//! The measured subject: the host over the mock or over the Go bridge, or upstream's controller manager with the
//! bridge's example cloud in its own process.
//!
//! In: a kind. Out: a fresh control plane with a cloud, a manager that can be started, and one way to read the cloud.
//! The example cloud is a directory, the same behind the bridge and behind upstream; it counts its calls as the mock
//! does.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use test_cluster::{
    Cloud, CloudFolder, Cluster, Options, Process, Profile, ProviderUnderTest, Steered as _, go, wait,
};

use crate::{Arguments, realistic};

/// Calls that are made whether or not anything happens.
const BACKGROUND: [&str; 4] = ["GetInfo", "GetCapabilities", "GetStatus", "WatchInstances"];
/// As many workers for upstream as the host has write slots.
const UPSTREAM: [&str; 8] = [
    "--cloud-provider=fake",
    "--leader-elect=false",
    "--secure-port=0",
    "--configure-cloud-routes=false",
    "--concurrent-node-syncs=32",
    "--concurrent-service-syncs=32",
    "--kube-api-qps=1000",
    "--kube-api-burst=2000",
];

/// The manager, and what is below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The host over the mock.
    Mock,
    /// The host over the Go bridge.
    Bridge,
    /// Upstream's controllers and the same Go provider, in one process.
    Upstream,
}

/// A control plane with a cloud, and the measured manager.
pub(crate) struct Subject {
    pub(crate) kind: Kind,
    pub(crate) cluster: Cluster,
    /// The cloud of all kinds but the mock.
    folder: TempDir,
    /// The flags that name it.
    cloud: Vec<String>,
    upstream: Option<Process>,
}

impl Subject {
    /// Starts everything but the manager.
    pub(crate) async fn start(kind: Kind, arguments: &Arguments) -> Result<Self> {
        let profile = if arguments.dev { Profile::Dev } else { Profile::Release };
        let mut options = Options { profile, ..Options::default() }.unrecorded();
        // The bench's machines are younger than the nodes that a host deletes by default.
        options.host.push("--node-deletion-grace=0s".to_owned());
        options.host.extend_from_slice(&arguments.host_flags);
        let folder = tempfile::tempdir()?;
        fs::create_dir_all(folder.path().join("calls"))?;
        let cloud = vec![
            format!("--fake-cloud-dir={}", folder.path().display()),
            format!("--fake-cloud-latency={}", arguments.latency),
        ];
        let cluster = match kind {
            Kind::Mock => {
                let latency = format!("--latency={}", arguments.latency);
                options.provider_flag(latency).start_without_host().await?
            }
            Kind::Bridge => {
                let program = built("provider-sdk/go/bridge", "./examples/fake", "bridged-fake").await?;
                // As many as upstream has workers; by default it is far more careful.
                let flags = [cloud.clone(), vec!["--concurrency=32".to_owned()]].concat();
                let name = "fake".to_owned();
                let provider = ProviderUnderTest { name, program, flags, environment: Vec::new() };
                options.provider_under_test(provider).start_without_host().await?
            }
            Kind::Upstream => options.start_control_plane().await?,
        };
        Ok(Self { kind, cluster, folder, cloud, upstream: None })
    }

    /// Starts the manager without waiting for it.
    pub(crate) async fn start_manager(&mut self) -> Result<()> {
        if self.kind != Kind::Upstream {
            return self.cluster.start_host();
        }
        self.upstream = Some(self.start_upstream("upstream", &[]).await?);
        Ok(())
    }

    /// Starts a manager that leads or stands by.
    pub(crate) async fn start_contender(&self, name: &str) -> Result<Process> {
        let elects = ["--leader-elect=true".to_owned()];
        match self.kind {
            Kind::Upstream => self.start_upstream(name, &elects).await,
            Kind::Mock | Kind::Bridge => self.cluster.start_replica(name, &elects),
        }
    }

    /// Waits until this contender stands by, because another one leads.
    pub(crate) async fn stands_by(&self, contender: &Process) -> Result<()> {
        if self.kind != Kind::Upstream {
            return contender.stands_by().await;
        }
        wait::until("upstream's manager that stands by", async || {
            Ok(contender.output().contains("Attempting to acquire leader lease").then_some(()))
        })
        .await
        .with_context(|| contender.tail())
    }

    async fn start_upstream(&self, name: &str, more: &[String]) -> Result<Process> {
        let program = built("tests/bench/peer", ".", "upstream-manager").await?;
        let kubeconfig = self.cluster.control_plane.kubeconfig_for("bench", &["system:masters"])?;
        let mut flags: Vec<String> = UPSTREAM.iter().map(ToString::to_string).collect();
        flags.push(format!("--kubeconfig={}", kubeconfig.display()));
        flags.extend(self.cloud.iter().chain(more).cloned());
        Process::start("upstream", &program, &flags, &[], &self.cluster.folder().join(format!("{name}.log")))
    }

    /// The measured processes: the manager, and the provider if it does what upstream's manager does itself.
    pub(crate) fn pids(&mut self) -> Result<Vec<u32>> {
        match (&self.upstream, self.kind) {
            (Some(upstream), _) => Ok(vec![upstream.id()]),
            (None, Kind::Bridge) => Ok(vec![self.cluster.host()?.id(), self.cluster.provider()?.id()]),
            (None, _) => Ok(vec![self.cluster.host()?.id()]),
        }
    }

    /// Creates a running machine for this node.
    pub(crate) async fn create_machine(&self, number: usize) -> Result<()> {
        let (name, zone) = (realistic::name(number), realistic::zone(number));
        match self.kind {
            Kind::Mock => self.mock()?.create_instance(&name, zone).await,
            Kind::Bridge | Kind::Upstream => {
                let address = format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255);
                CloudFolder::new(self.folder.path())?.create_machine(&name, zone, &address).await
            }
        }
    }

    /// Terminates the machine at once.
    pub(crate) async fn terminate_machine(&self, name: &str) -> Result<()> {
        match self.kind {
            Kind::Mock => self.mock()?.terminate_instance(name).await,
            Kind::Bridge | Kind::Upstream => {
                CloudFolder::new(self.folder.path())?.terminate_machine(name).await
            }
        }
    }

    /// How many balancers have this node behind them.
    pub(crate) async fn behind(&self, node: &str) -> Result<usize> {
        if self.kind == Kind::Mock {
            return Ok(self.mock()?.balancers_with(node).await?.len());
        }
        let backends = CloudFolder::new(self.folder.path())?.backends().await?;
        Ok(backends.values().filter(|nodes| nodes.iter().any(|name| name == node)).count())
    }

    /// The door of the mock, which only [`Kind::Mock`] has.
    pub(crate) fn mock(&self) -> Result<Cloud> {
        self.cluster.cloud()
    }

    /// Forgets the calls so far.
    pub(crate) async fn reset_calls(&self) -> Result<()> {
        if self.kind == Kind::Mock {
            return self.mock()?.reset_calls().await;
        }
        for file in fs::read_dir(self.folder.path().join("calls"))? {
            fs::remove_file(file?.path())?;
        }
        Ok(())
    }

    /// The calls since, by method, except those that are made anyway: calls of the provider if it is the mock, else
    /// calls of the cloud.
    pub(crate) async fn calls(&self) -> Result<Vec<(String, u64)>> {
        if self.kind == Kind::Mock {
            let calls = self.mock()?.call_counts().await?.into_iter();
            return Ok(calls.filter(|(method, _)| !BACKGROUND.contains(&method.as_str())).collect());
        }
        let mut calls = Vec::new();
        for file in fs::read_dir(self.folder.path().join("calls"))? {
            let file = file?;
            calls.push((file.file_name().to_string_lossy().into_owned(), file.metadata()?.len()));
        }
        calls.sort();
        Ok(calls)
    }

    /// The last output of all parts, for the message of a failure.
    pub(crate) fn parts(&self) -> String {
        match &self.upstream {
            Some(upstream) => upstream.tail(),
            None => format!("{:?}", self.cluster.parts()),
        }
    }
}

async fn built(module: &'static str, package: &'static str, name: &'static str) -> Result<PathBuf> {
    tokio::task::spawn_blocking(move || go::built(module, package, name))
        .await?
        .with_context(|| format!("cannot build {name}"))
}
