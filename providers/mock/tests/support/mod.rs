//! The real binary in a temporary folder, with clients for both of its doors.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of this")]

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use cloudprovider_sdk::{
    ProviderError,
    contract::discovery::v1::{GetInfoRequest, discovery_client::DiscoveryClient},
    proto::{
        BackendSet, BatchGetInstancesRequest, ClusterRef, EnsureLoadBalancerRequest, ErrorReason, Fencing,
        InstanceQuery, InstanceResult, NodeRef, Protocol, Service, ServicePort, ServiceRef,
        cloud_provider_client::CloudProviderClient, clusters_client::ClustersClient,
        instances_client::InstancesClient, load_balancers_client::LoadBalancersClient,
        routes_client::RoutesClient, volumes_client::VolumesClient,
    },
};
use provider_mock::{admin::Client, fault::Fault};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tonic::{
    Request, Status,
    transport::{Channel, Endpoint},
};

pub const PATIENCE: Duration = Duration::from_secs(20);
pub const CLUSTER: &str = "c0000000-0000-4000-8000-000000000001";
pub const SERVICE: &str = "50000000-0000-4000-8000-000000000001";

/// A running mock.
pub struct Mock {
    pub folder: TempDir,
    pub admin: Client,
    pub channel: Channel,
    pub child: Child,
    arguments: Vec<String>,
}

impl Mock {
    pub async fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::start_in(folder, arguments.iter().map(|argument| (*argument).to_owned()).collect()).await
    }

    async fn start_in(folder: TempDir, arguments: Vec<String>) -> Self {
        let address_file = folder.path().join("admin");
        // A former start's address would be believed.
        let _none_at_first = std::fs::remove_file(&address_file);
        let child = command(folder.path())
            .args(["--admin-address", "127.0.0.1:0", "--admin-address-file"])
            .arg(&address_file)
            .args(&arguments)
            .stderr(Stdio::from(std::fs::File::create(folder.path().join("log")).unwrap()))
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let admin = match Client::from_address_file(&address_file, PATIENCE).await {
            Ok(admin) => admin,
            Err(error) => panic!("{error}\n{}", log(folder.path())),
        };
        let channel = connect(folder.path()).await;
        Self { folder, admin, channel, child, arguments }
    }

    /// Kills it as the kernel does, and starts it anew in the same folder.
    pub async fn kill_and_restart(mut self) -> Self {
        self.child.kill().await.unwrap();
        Self::start_in(self.folder, self.arguments).await
    }

    pub fn log(&self) -> String {
        log(self.folder.path())
    }

    pub async fn fault(&self, text: &str) -> u64 {
        let fault: Fault = text.parse().unwrap();
        self.admin.add_fault(&fault).await.unwrap().id
    }

    pub async fn clear(&self) {
        self.admin.clear_faults().await.unwrap();
    }

    pub fn discovery(&self) -> DiscoveryClient<Channel> {
        DiscoveryClient::new(self.channel.clone())
    }

    pub fn base(&self) -> CloudProviderClient<Channel> {
        CloudProviderClient::new(self.channel.clone())
    }

    pub fn instances(&self) -> InstancesClient<Channel> {
        InstancesClient::new(self.channel.clone())
    }

    pub fn balancers(&self) -> LoadBalancersClient<Channel> {
        LoadBalancersClient::new(self.channel.clone())
    }

    pub fn routes(&self) -> RoutesClient<Channel> {
        RoutesClient::new(self.channel.clone())
    }

    pub fn volumes(&self) -> VolumesClient<Channel> {
        VolumesClient::new(self.channel.clone())
    }

    pub fn clusters(&self) -> ClustersClient<Channel> {
        ClustersClient::new(self.channel.clone())
    }

    pub async fn epoch(&self) -> String {
        self.discovery().get_info(GetInfoRequest::default()).await.unwrap().into_inner().process_epoch
    }

    /// Asks for nodes by name or, when it looks like one, by provider ID; the key is the name.
    pub async fn get(&self, nodes: &[&str]) -> Result<Vec<InstanceResult>, Status> {
        let answer = self.instances().batch_get_instances(timely(batch(nodes))).await?;
        Ok(answer.into_inner().results)
    }

    pub async fn get_one(&self, node: &str) -> InstanceResult {
        self.get(&[node]).await.unwrap().remove(0)
    }
}

pub fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_provider-mock"));
    command.arg("--endpoint").arg(format!("unix://{}", socket(folder).display()));
    command
}

pub fn socket(folder: &Path) -> PathBuf {
    folder.join("run").join("ccm.sock")
}

pub async fn connect(folder: &Path) -> Channel {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket(folder).display())).unwrap();
    endpoint.connect().await.unwrap()
}

fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// A request with a deadline that is only met when something is wrong.
pub fn timely<T>(message: T) -> Request<T> {
    within(message, PATIENCE)
}

pub fn within<T>(message: T, deadline: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}

pub fn cluster() -> Option<ClusterRef> {
    Some(ClusterRef { uid: CLUSTER.into(), name: "prod".into() })
}

/// Leader election is off.
pub fn fencing() -> Option<Fencing> {
    Some(Fencing::default())
}

pub fn node(name: &str) -> NodeRef {
    let by_id = name.contains("://");
    NodeRef {
        name: if by_id { "by-id".into() } else { name.into() },
        uid: "uid".into(),
        provider_id: if by_id { name.into() } else { String::new() },
        ..NodeRef::default()
    }
}

pub fn batch(nodes: &[&str]) -> BatchGetInstancesRequest {
    let query = |name: &&str| InstanceQuery { key: (*name).to_owned(), node: Some(node(name)) };
    BatchGetInstancesRequest {
        cluster: cluster(),
        queries: nodes.iter().map(query).collect(),
        ..BatchGetInstancesRequest::default()
    }
}

pub fn service_ref(uid: &str) -> ServiceRef {
    ServiceRef { namespace: "ns".into(), name: "web".into(), uid: uid.into() }
}

pub fn service(uid: &str) -> Service {
    Service {
        r#ref: Some(service_ref(uid)),
        ports: vec![ServicePort {
            protocol: Protocol::Tcp.into(),
            port: 80,
            node_port: 30080,
            ..ServicePort::default()
        }],
        ..Service::default()
    }
}

pub fn ensure(uid: &str, digest: &str, revision: u64) -> EnsureLoadBalancerRequest {
    EnsureLoadBalancerRequest {
        cluster: cluster(),
        fencing: fencing(),
        service: Some(service(uid)),
        backends: Some(BackendSet {
            digest: "set".into(),
            nodes: vec![node("node-0")],
            nodes_omitted: false,
        }),
        desired_digest: digest.into(),
        revision,
        adoption: 0,
    }
}

/// The contract's reason of an error; panics when it has none.
pub fn reason(status: &Status) -> ErrorReason {
    match ProviderError::from_status(status) {
        Some(error) => error.reason(),
        None => panic!("no ErrorInfo: {status:?}"),
    }
}
