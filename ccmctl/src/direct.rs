//! A provider itself, over its socket, without any host.
//!
//! Only reads: a mutation needs leadership, which `ccmctl` never has.

use std::{io, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use ccm_state::{
    Provider as Described, ProviderInfo, ProviderStatus,
    inventory::{Cluster, Inventory, Items, volume_queries},
};
use cloudprovider_proto::{
    discovery::v1::{GetInfoRequest, discovery_client::DiscoveryClient},
    v1alpha1::{
        self as pb, ConditionStatus, ConditionType, cloud_provider_client::CloudProviderClient,
        clusters_client::ClustersClient, instances_client::InstancesClient,
        load_balancers_client::LoadBalancersClient, routes_client::RoutesClient,
        volumes_client::VolumesClient,
    },
};
use hyper_util::rt::TokioIo;
use tonic::{
    Request, Status,
    transport::{Channel, Endpoint, Uri},
};
use tower::service_fn;

use crate::cli::ProviderVerb;

/// The longest deadline of a read in the contract.
const PATIENCE: Duration = Duration::from_secs(120);
/// More pages than the largest cloud has.
const MOST_PAGES: usize = 10_000;
/// The largest message that the contract allows.
const MESSAGE: usize = 64 << 20;
const PACKAGE: &str = "ccm.cloudprovider.";

#[derive(Debug)]
pub(crate) struct Provider {
    channel: Channel,
    endpoint: String,
}

#[cfg(unix)]
async fn open(socket: PathBuf) -> io::Result<tokio::net::UnixStream> {
    tokio::net::UnixStream::connect(socket).await
}

#[cfg(not(unix))]
async fn open(_: PathBuf) -> io::Result<tokio::io::DuplexStream> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "tokio has no Unix sockets on this system"))
}

impl Provider {
    pub(crate) async fn connect(endpoint: &str) -> Result<Self> {
        let Some(path) = endpoint.strip_prefix("unix://").filter(|path| path.starts_with('/')) else {
            bail!(
                "--provider={endpoint:?} cannot be asked directly: give unix:///PATH, or the name of a provider of the host"
            );
        };
        let path = PathBuf::from(path);
        // The name is never resolved.
        let channel = Endpoint::from_static("http://provider")
            .connect_with_connector(service_fn(move |_: Uri| {
                let path = path.clone();
                async move { open(path).await.map(TokioIo::new) }
            }))
            .await
            .with_context(|| {
                format!("cannot connect to {endpoint}: does the provider listen there, and may you open its socket?")
            })?;
        Ok(Self { channel, endpoint: endpoint.to_owned() })
    }

    /// What the provider says of itself.
    pub(crate) async fn describe(&self) -> Result<Described> {
        let hello = DiscoveryClient::new(self.channel.clone())
            .get_info(ask(GetInfoRequest {
                host_name: "ccmctl".to_owned(),
                host_version: env!("CARGO_PKG_VERSION").to_owned(),
                host_services: Vec::new(),
            })?)
            .await
            .map_err(|status| self.failed("GetInfo", &status))?
            .into_inner();
        let mut client = CloudProviderClient::new(self.channel.clone());
        let capable = client
            .get_capabilities(ask(pb::GetCapabilitiesRequest::default())?)
            .await
            .map_err(|status| self.failed("GetCapabilities", &status))?
            .into_inner();
        let told = client
            .get_status(ask(pb::GetStatusRequest::default())?)
            .await
            .map_err(|status| self.failed("GetStatus", &status))?
            .into_inner();
        let (status, reason) = standing(&told);
        let contract = hello.services.iter().filter_map(|name| name.strip_prefix(PACKAGE)).map(str::to_owned);
        let capability = |one: pb::Capability| one.as_str_name().replacen("CAPABILITY_", "", 1);
        Ok(Described {
            name: self.endpoint.clone(),
            status,
            reason,
            info: Some(ProviderInfo {
                contract: contract.collect(),
                capabilities: capable.capabilities().map(capability).collect(),
                load_balancer_classes: capable.load_balancer_classes.clone(),
                name: hello.name,
                version: hello.vendor_version,
                provider_id_prefixes: hello.provider_id_prefixes,
            }),
            last_error: None,
            calls: Vec::new(),
        })
    }

    /// What the provider has.
    pub(crate) async fn inventory(&self, uid: &str, verb: &ProviderVerb) -> Result<Inventory> {
        let cluster = || Some(pb::ClusterRef { uid: uid.to_owned(), name: String::new() });
        let (mut unreachable, mut token, mut pages) = (Vec::new(), String::new(), 0);
        let mut items = match verb {
            ProviderVerb::Instances => Items::Instances(Vec::new()),
            ProviderVerb::LoadBalancers => Items::LoadBalancers(Vec::new()),
            ProviderVerb::Routes => Items::Routes(Vec::new()),
            ProviderVerb::Clusters { name: None } => Items::Clusters(Vec::new()),
            ProviderVerb::Clusters { name: Some(name) } => {
                let request =
                    pb::GetControlPlaneEndpointRequest { cluster: cluster(), cluster_name: name.clone() };
                let found = ClustersClient::new(self.channel.clone())
                    .get_control_plane_endpoint(ask(request)?)
                    .await
                    .map_err(|status| self.failed("GetControlPlaneEndpoint", &status))?;
                let found = Cluster::at(name, found.get_ref());
                return Ok(Inventory::new(&self.endpoint, Items::Clusters(vec![found]), unreachable));
            }
            ProviderVerb::Volumes { plugin, ids } => {
                let request = pb::BatchGetVolumeLabelsRequest {
                    cluster: cluster(),
                    queries: volume_queries(plugin, ids),
                };
                let found = VolumesClient::new(self.channel.clone())
                    .batch_get_volume_labels(ask(request)?)
                    .await
                    .map_err(|status| self.failed("BatchGetVolumeLabels", &status))?;
                let found = found.into_inner().results.into_iter().map(Into::into).collect();
                return Ok(Inventory::new(&self.endpoint, Items::Volumes(found), unreachable));
            }
            ProviderVerb::Info | ProviderVerb::Status => bail!("there is nothing to list"),
        };
        loop {
            let page_token = std::mem::take(&mut token);
            let parts;
            match &mut items {
                Items::Instances(all) => {
                    let view = pb::InstanceView::Metadata.into();
                    let request =
                        pb::ListInstancesRequest { cluster: cluster(), page_token, view, page_size: 0 };
                    let mut client =
                        InstancesClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE);
                    let page = client.list_instances(ask(request)?).await;
                    let page = page.map_err(|status| self.failed("ListInstances", &status))?.into_inner();
                    all.extend(page.instances.into_iter().map(Into::into));
                    (token, parts) = (page.next_page_token, page.unreachable);
                }
                Items::LoadBalancers(all) => {
                    let request =
                        pb::ListLoadBalancersRequest { cluster: cluster(), page_token, page_size: 0 };
                    let mut client =
                        LoadBalancersClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE);
                    let page = client.list_load_balancers(ask(request)?).await;
                    let page = page.map_err(|status| self.failed("ListLoadBalancers", &status))?.into_inner();
                    all.extend(page.load_balancers.into_iter().map(Into::into));
                    (token, parts) = (page.next_page_token, page.unreachable);
                }
                Items::Routes(all) => {
                    let request = pb::ListRoutesRequest {
                        cluster: cluster(),
                        page_token,
                        ..pb::ListRoutesRequest::default()
                    };
                    let mut client =
                        RoutesClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE);
                    let page = client.list_routes(ask(request)?).await;
                    let page = page.map_err(|status| self.failed("ListRoutes", &status))?.into_inner();
                    all.extend(page.routes.into_iter().map(Into::into));
                    (token, parts) = (page.next_page_token, page.unreachable);
                }
                Items::Clusters(all) => {
                    let request = pb::ListClustersRequest { cluster: cluster(), page_token, page_size: 0 };
                    let page = ClustersClient::new(self.channel.clone()).list_clusters(ask(request)?).await;
                    let page = page.map_err(|status| self.failed("ListClusters", &status))?.into_inner();
                    all.extend(page.names.into_iter().map(|name| Cluster { name, endpoint: None }));
                    (token, parts) = (page.next_page_token, Vec::new());
                }
                Items::Volumes(_) => break,
            }
            unreachable.extend(
                parts
                    .into_iter()
                    .map(|part| format!("{}: {}", part.location, part.error.unwrap_or_default().message)),
            );
            pages += 1;
            if token.is_empty() {
                break;
            }
            if pages >= MOST_PAGES {
                bail!("{} has more than {MOST_PAGES} pages: its list never ends", self.endpoint);
            }
        }
        Ok(Inventory::new(&self.endpoint, items, unreachable))
    }

    fn failed(&self, method: &str, status: &Status) -> anyhow::Error {
        match status.code() {
            tonic::Code::Unimplemented => anyhow!("{} does not serve {method}", self.endpoint),
            code => anyhow!("{} failed {method} ({code:?}): {}", self.endpoint, status.message()),
        }
    }
}

/// As the host judges it: bad credentials or a cloud that does not answer freeze.
fn standing(told: &pb::GetStatusResponse) -> (ProviderStatus, Option<String>) {
    let freezes = |condition: &&pb::ProviderCondition| {
        matches!(condition.r#type(), ConditionType::CredentialsValid | ConditionType::CloudReachable)
            && condition.status() == ConditionStatus::False
    };
    match told.conditions.iter().find(freezes) {
        None => (ProviderStatus::Serving, None),
        Some(bad) => {
            let name = bad.r#type().as_str_name().replacen("CONDITION_TYPE_", "", 1);
            (ProviderStatus::Frozen, Some(format!("{name} is FALSE: {}: {}", bad.reason, bad.message)))
        }
    }
}

/// A request with what the contract wants of every call.
fn ask<T>(message: T) -> Result<Request<T>> {
    let mut request = Request::new(message);
    request.set_timeout(PATIENCE);
    let id = format!("ccmctl-{}-{}", std::process::id(), jiff::Timestamp::now().as_nanosecond());
    request.metadata_mut().insert("x-request-id", id.parse()?);
    Ok(request)
}
