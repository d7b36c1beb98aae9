//! An emulated AWS with a cluster's network, and providers for it. All of it ends when dropped.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use cloudprovider_proto::v1alpha1::cloud_provider_client::CloudProviderClient;
use cloudprovider_proto::v1alpha1::instances_client::InstancesClient;
use cloudprovider_proto::v1alpha1::load_balancers_client::LoadBalancersClient;
use cloudprovider_proto::v1alpha1::routes_client::RoutesClient;
use cloudprovider_proto::v1alpha1::{
    BatchGetInstancesRequest, ClusterRef, Fencing, GetCapabilitiesRequest, InstanceQuery, InstanceResult,
    InstanceView, LeadRequest, NodeRef, Wants,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// How long a process has to start.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Aws {
    folder: TempDir,
    /// Of everything: EC2, STS, the instance metadata service.
    pub(crate) url: String,
    pub(crate) environment: BTreeMap<String, String>,
    /// The IDs of the cluster's subnets, by zone.
    pub(crate) subnets: BTreeMap<String, String>,
    /// The ID of the nodes' security group.
    pub(crate) security_group: String,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

/// An instance, perhaps of a named shape.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Instance {
    #[serde(default)]
    pub name: String,
    pub id: String,
    pub node: String,
    pub zone: String,
}

impl Instance {
    pub(crate) fn provider_id(&self) -> String {
        format!("aws:///{}/{}", self.zone, self.id)
    }

    /// Its node before it is initialised, an hour old.
    pub(crate) fn new_node(&self) -> NodeRef {
        let created = SystemTime::now() - Duration::from_secs(3600);
        NodeRef {
            name: self.node.clone(),
            uid: self.id.clone(),
            creation_time: Some(created.into()),
            ..NodeRef::default()
        }
    }

    /// Its node afterwards.
    pub(crate) fn node(&self) -> NodeRef {
        NodeRef { provider_id: self.provider_id(), ..self.new_node() }
    }
}

impl Aws {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut process = tokio::process::Command::new(go().join("aws-emulator"))
            .arg(folder.path().join("cloud.conf"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = process.stdin.take().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = stdout.next_line().await.unwrap().expect("the emulator has started");
        let mut greeting: Value = serde_json::from_str(&line).unwrap();
        let environment = serde_json::from_value(greeting["environment"].take()).unwrap();
        let url = serde_json::from_value(greeting["url"].take()).unwrap();
        let subnets = serde_json::from_value(greeting["network"]["subnets"].take()).unwrap();
        let security_group = serde_json::from_value(greeting["network"]["security_group"].take()).unwrap();
        Self { folder, url, environment, subnets, security_group, stdin, stdout, _process: process }
    }

    /// Tells the emulator something, and returns its answer.
    pub(crate) async fn tell<T: DeserializeOwned>(&mut self, line: &str) -> T {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        let answer = self.stdout.next_line().await.unwrap().expect("the emulator goes on");
        let value: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(value.get("error"), None, "the emulator was told {line:?}");
        serde_json::from_value(value).unwrap()
    }

    /// How many calls the cloud has had, in all, but for those of zones: a provider makes them when it starts and when it has
    /// long been silent, however busy the machine.
    pub(crate) async fn calls(&mut self) -> u32 {
        let calls = self.tell::<BTreeMap<String, u32>>("calls").await;
        calls.iter().filter(|(action, _)| *action != "ec2:DescribeAvailabilityZones").map(|one| one.1).sum()
    }

    /// The calls since then that change something, and their number.
    pub(crate) async fn changes_since(&mut self, then: &BTreeMap<String, u32>) -> BTreeMap<String, u32> {
        let now = self.tell::<BTreeMap<String, u32>>("calls").await;
        let since = now.into_iter().map(|(action, count)| {
            let before = then.get(&action).copied().unwrap_or_default();
            (action, count - before)
        });
        since.filter(|(action, count)| *count > 0 && !action.contains(":Describe")).collect()
    }

    /// Adds to the cloud config, in its section Global.
    pub(crate) fn configure(&self, setting: &str) {
        self.edit(|text| text.replacen("[Global]\n", &format!("[Global]\n{setting}\n"), 1));
    }

    /// Removes settings from the cloud config.
    pub(crate) fn leave_out(&self, names: &[&str]) {
        let is_kept = |line: &&str| !names.iter().any(|name| line.starts_with(&format!("{name} =")));
        // Overrides have a region of their own.
        self.edit(|text| {
            let (global, overrides) = text.split_once("\n\n").unwrap();
            format!("{}\n\n{overrides}", global.lines().filter(is_kept).collect::<Vec<_>>().join("\n"))
        });
    }

    fn edit(&self, change: impl Fn(&str) -> String) {
        let path = self.folder.path().join("cloud.conf");
        std::fs::write(&path, change(&std::fs::read_to_string(&path).unwrap())).unwrap();
    }

    /// A file beside the cloud config.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// The provider of this crate.
    pub(crate) async fn native(&self, flags: &[&str]) -> Provider {
        self.serve(Path::new(env!("CARGO_BIN_EXE_provider-aws")), flags).await
    }

    /// The published provider behind the bridge.
    pub(crate) async fn published(&self) -> Provider {
        self.serve(&go().join("bridged-aws"), &["--initialize-at-start"]).await
    }

    async fn serve(&self, program: &Path, flags: &[&str]) -> Provider {
        let socket = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap();
        let endpoint = format!("unix://{}", socket.path().join("p.sock").display());
        let log = std::fs::File::create(socket.path().join("log")).unwrap();
        let mut process = tokio::process::Command::new(program)
            .arg(format!("--endpoint={endpoint}"))
            .arg(format!("--cloud-config={}", self.folder.path().join("cloud.conf").display()))
            .args(flags)
            .env_clear()
            .envs(&self.environment)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let channel = loop {
            if let Ok(channel) = Endpoint::from_shared(endpoint.clone()).unwrap().connect().await {
                break channel;
            }
            let log = || std::fs::read_to_string(socket.path().join("log")).unwrap();
            assert!(process.try_wait().unwrap().is_none(), "{} ended: {}", program.display(), log());
            assert!(begun.elapsed() < PATIENCE, "{} does not serve: {}", program.display(), log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        Provider { channel, _process: process, _socket: socket }
    }
}

/// A provider that serves.
pub(crate) struct Provider {
    channel: Channel,
    _process: Child,
    _socket: TempDir,
}

pub(crate) fn cluster() -> Option<ClusterRef> {
    Some(ClusterRef { uid: "cluster-1".to_owned(), name: "kubernetes".to_owned() })
}

impl Provider {
    pub(crate) fn instances(&self) -> InstancesClient<Channel> {
        InstancesClient::new(self.channel.clone()).max_decoding_message_size(16 << 20)
    }

    pub(crate) fn balancers(&self) -> LoadBalancersClient<Channel> {
        LoadBalancersClient::new(self.channel.clone())
    }

    pub(crate) fn routes(&self) -> RoutesClient<Channel> {
        RoutesClient::new(self.channel.clone())
    }

    /// Makes somebody the cluster's leader.
    pub(crate) async fn lead(&self, fencing: Fencing) {
        let valid_for = Duration::from_secs(600).try_into().ok();
        let lead = LeadRequest { cluster: cluster(), fencing: Some(fencing), valid_for, valid_until: None };
        CloudProviderClient::new(self.channel.clone()).lead(lead).await.unwrap();
    }

    /// What the provider reads of the host's objects.
    pub(crate) async fn wants(&self) -> Wants {
        let request = GetCapabilitiesRequest::default();
        let answer = CloudProviderClient::new(self.channel.clone()).get_capabilities(request).await;
        answer.unwrap().into_inner().wants.unwrap()
    }

    /// The results, in the order of the nodes.
    pub(crate) async fn ask(&self, nodes: &[NodeRef], view: InstanceView) -> Vec<InstanceResult> {
        self.try_ask(nodes, view).await.unwrap()
    }

    pub(crate) async fn try_ask(
        &self,
        nodes: &[NodeRef],
        view: InstanceView,
    ) -> Result<Vec<InstanceResult>, Status> {
        let queries = nodes.iter().enumerate();
        let queries =
            queries.map(|(at, node)| InstanceQuery { key: at.to_string(), node: Some(node.clone()) });
        let request = BatchGetInstancesRequest {
            cluster: cluster(),
            queries: queries.collect(),
            view: view.into(),
            max_staleness: None,
        };
        let mut results = self.instances().batch_get_instances(request).await?.into_inner().results;
        results.sort_by_key(|one| one.key.parse::<usize>().unwrap());
        assert_eq!(results.len(), nodes.len());
        Ok(results)
    }
}

/// The folder of the programs that are written in Go, up to date.
fn go() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go");
        let built = Command::new("go")
            .args(["build", "-o"])
            .arg(format!("{}/", folder.display()))
            .args([".", "./cmd/aws-emulator"])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../bridged-aws"))
            .status();
        assert!(built.expect("go is on the PATH").success());
        folder
    };
    BUILT.get_or_init(build).clone()
}
