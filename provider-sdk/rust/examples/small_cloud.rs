//! A whole provider for a small cloud, whose REST API `tests/small-cloud` describes: instances with a watch, load balancers that
//! keep their digest, and routes.
//!
//! Every call reads the cloud anew. The SDK does the rest: leadership, one mutation at a time for each Service, shapes,
//! deadlines, sets of backends, pages.
use std::{collections::HashMap, error::Error, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::Parser;
use cloudprovider_sdk::proto::*;
use cloudprovider_sdk::{
    CallContext, CloudProvider, InstanceWatch, Instances, LoadBalancers, Provider, ProviderError, Result,
    Routes, ServeOptions, WatchEvent, async_trait, paging, results, telemetry,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy, client::legacy::connect::HttpConnector, rt::TokioExecutor};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

const PREFIX: &str = "small://";
/// How many requests of one batch run at once.
const AT_ONCE: usize = 16;
/// Bounds one request.
const CALL_WITHIN: Duration = Duration::from_secs(30);

#[derive(clap::Parser)]
struct Flags {
    /// URL of the cloud's API.
    #[arg(long)]
    cloud: String,
    /// File with the token for it.
    #[arg(long)]
    token_file: PathBuf,
    #[command(flatten)]
    serve: ServeOptions,
}

/// A text of a server, a balancer or a route, as the API has it.
fn text(thing: &Value, key: &str) -> String {
    thing[key].as_str().unwrap_or_default().to_owned()
}

fn list(things: Value) -> Vec<Value> {
    if let Value::Array(all) = things { all } else { Vec::new() }
}

/// Why the cloud did not do what it was asked.
enum Failure {
    NotFound,
    Changed,
    Other(ProviderError),
}

impl From<Failure> for ProviderError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Other(error) => error,
            _ => Self::internal("the cloud has no such object, or another one"),
        }
    }
}

/// Calls the cloud's API, and remembers how the last call ended.
#[derive(Clone)]
struct Cloud(Arc<Client>);

struct Client {
    url: String,
    token: String,
    http: legacy::Client<HttpConnector, Full<hyper::body::Bytes>>,
    last: Mutex<Option<ErrorReason>>,
}

impl Cloud {
    /// Sends a request and decodes the answer. An answer that is an error becomes the contract's.
    async fn call(&self, method: &str, path: &str, body: Value) -> Result<Value, Failure> {
        let sent = tokio::time::timeout(CALL_WITHIN, self.send(method, path, body)).await;
        let answer = sent.unwrap_or_else(|late| Err(unavailable(late)));
        *self.0.last.lock() = match &answer {
            Err(Failure::Other(error)) => Some(error.reason()),
            _ => None,
        };
        answer
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> Result<Value, Failure> {
        let request = hyper::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.0.url))
            .header("authorization", format!("Bearer {}", self.0.token))
            .body(Full::from(body.to_string()))
            .map_err(internal)?;
        let answer = self.0.http.request(request).await.map_err(unavailable)?;
        let (status, wait) = (answer.status().as_u16(), answer.headers().get("retry-after"));
        let wait = wait.and_then(|wait| wait.to_str().ok()?.parse().ok()).unwrap_or(1);
        let body = answer.into_body().collect().await.map_err(unavailable)?.to_bytes();
        Err(Failure::Other(match status {
            200 => return serde_json::from_slice(&body).map_err(internal),
            404 => return Err(Failure::NotFound),
            409 => return Err(Failure::Changed),
            401 => ProviderError::cloud_credentials_invalid(),
            403 => ProviderError::cloud_permission_denied(&format!("{method} {path}")),
            422 => ProviderError::quota_exceeded("the project", &String::from_utf8_lossy(&body)),
            429 => ProviderError::rate_limited(Duration::from_secs(wait)),
            503 => ProviderError::cloud_api_unavailable(),
            _ => ProviderError::internal(format!("{method} {path}: status {status}")),
        }))
    }
}

fn internal(error: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
    Failure::Other(ProviderError::internal(error))
}

fn unavailable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
    Failure::Other(ProviderError::cloud_api_unavailable().with_source(error))
}

#[async_trait]
impl CloudProvider for Cloud {
    async fn get_status(&self, _ctx: &CallContext) -> Result<GetStatusResponse> {
        let last = *self.0.last.lock();
        let condition = |r#type: ConditionType, reason| {
            let failed = last == Some(reason);
            let status = if failed { ConditionStatus::False } else { ConditionStatus::True };
            let reason = if failed { "LastCallFailed" } else { "" }.to_owned();
            ProviderCondition { r#type: r#type.into(), status: status.into(), reason, ..Default::default() }
        };
        let conditions = vec![
            condition(ConditionType::CloudReachable, ErrorReason::CloudApiUnavailable),
            condition(ConditionType::CredentialsValid, ErrorReason::CloudCredentialsInvalid),
        ];
        Ok(GetStatusResponse { conditions })
    }
}

#[async_trait]
impl Instances for Cloud {
    /// Answers all queries from one list.
    async fn batch_get_instances(
        &self,
        _ctx: &CallContext,
        request: BatchGetInstancesRequest,
    ) -> Result<BatchGetInstancesResponse> {
        let all = list(self.call("GET", "/servers", Value::Null).await?);
        // By provider ID, and by the name of a node that has none yet.
        let mut found = HashMap::<String, Vec<&Value>>::new();
        for server in &all {
            found.entry(format!("{PREFIX}{}", text(server, "id"))).or_default().push(server);
            found.entry(text(server, "name")).or_default().push(server);
        }
        let results = request.queries.iter().map(|query| look_up(query, &found)).collect();
        Ok(BatchGetInstancesResponse { results })
    }

    /// Watches from a moment before the watch is said to have started.
    async fn watch_instances(&self, _ctx: &CallContext, _: WatchInstancesRequest) -> Result<InstanceWatch> {
        let now = self.call("GET", "/changes?after=-1", Value::Null).await?;
        let last = (self.clone(), now["last"].clone());
        let changes = stream::try_unfold(last, async |(cloud, last)| -> Result<_> {
            let mut next = cloud.call("GET", &format!("/changes?after={last}"), Value::Null).await?;
            let events = list(next["servers"].take()).into_iter().map(|id| {
                let provider_id = format!("{PREFIX}{}", id.as_str().unwrap_or_default());
                Ok(WatchEvent::Changed(InstanceChanged { provider_id, ..Default::default() }))
            });
            Ok(Some((stream::iter(events), (cloud, next["last"].take()))))
        });
        Ok(InstanceWatch::from_now(changes.try_flatten()))
    }
}

fn look_up(query: &InstanceQuery, found: &HashMap<String, Vec<&Value>>) -> InstanceResult {
    let NodeRef { name, provider_id: id, .. } = query.node.clone().unwrap_or_default();
    if !id.is_empty() && (!id.starts_with(PREFIX) || id == PREFIX) {
        return results::not_owned(&query.key);
    }
    let server = match found.get(if id.is_empty() { &name } else { &id }).map(Vec::as_slice) {
        None | Some([]) => return results::absent(query),
        Some([server]) => server,
        Some(_) => return results::unknown(&query.key, &ProviderError::instance_ambiguous(&name)),
    };
    let address = NodeAddress { r#type: NodeAddressType::InternalIp.into(), address: text(server, "ip") };
    let instance = Instance {
        provider_id: format!("{PREFIX}{}", text(server, "id")),
        name: text(server, "name"),
        instance_type: text(server, "type"),
        zone: text(server, "zone"),
        addresses: vec![address],
        ..Default::default()
    };
    let state = if server["status"] == "stopped" { InstanceState::Stopped } else { InstanceState::Running };
    results::found(&query.key, state, instance)
}

/// The path of a balancer: its name has both uids. A tag has the digest.
fn path_of(ctx: &CallContext, service: Option<&ServiceRef>) -> String {
    let uid = service.map_or("", |service| &service.uid);
    format!("/balancers/{}", escaped(&format!("{}.{uid}", ctx.cluster_uid())))
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Translates a Service. What this cloud cannot do is refused by name, before anything changes.
fn wanted(ctx: &CallContext, request: &EnsureLoadBalancerRequest) -> Result<Value> {
    let (service, unsupported) =
        (request.service.clone().unwrap_or_default(), ProviderError::unsupported_feature);
    if !service.load_balancer_ip.is_empty() {
        return Err(unsupported("spec.loadBalancerIP", "the cloud chooses addresses"));
    }
    if service.client_ip_affinity.is_some() {
        return Err(unsupported("spec.sessionAffinity", "the cloud's balancers know none"));
    }
    if service.ports.iter().any(|port| port.node_port == 0) {
        let why = "the cloud reaches pods by node ports";
        return Err(unsupported("spec.allocateLoadBalancerNodePorts", why));
    }
    let mut ports = Vec::new();
    for (at, port) in service.ports.iter().enumerate() {
        if port.protocol() == Protocol::Unspecified {
            return Err(unsupported(&format!("spec.ports[{at}].protocol"), "the cloud does not know it"));
        }
        let protocol = port.protocol().as_str_name().trim_start_matches("PROTOCOL_");
        ports.push(json!({ "protocol": protocol, "port": port.port, "node_port": port.node_port }));
    }
    let families = service.ip_families().map(|family| family.as_str_name().trim_start_matches("IP_FAMILY_"));
    let families: Vec<_> = families.collect();
    let local = service.external_traffic_policy() == TrafficPolicy::Local;
    let of = service.r#ref.clone().unwrap_or_default();
    Ok(json!({
        "tags": {
            "cluster": ctx.cluster_uid(), "namespace": of.namespace, "service": of.name, "uid": of.uid,
            "digest": request.desired_digest,
        },
        "ports": ports,
        "families": if families.is_empty() { vec!["IPV4"] } else { families },
        "sources": service.source_ranges,
        "check": if local { service.health_check_node_port } else { 0 },
        "servers": servers_of(request.backends.as_ref()),
    }))
}

/// The servers behind a balancer; a node without an instance gets no traffic.
fn servers_of(backends: Option<&BackendSet>) -> Vec<&str> {
    let nodes = backends.map_or(&[][..], |backends| &backends.nodes);
    nodes.iter().filter_map(|node| node.provider_id.strip_prefix(PREFIX)).collect()
}

fn balancer(found: &Value) -> LoadBalancer {
    let (tags, active) = (&found["tags"], found["status"] == "active");
    let [namespace, name, uid] = ["namespace", "service", "uid"].map(|key| text(tags, key));
    let ingress = list(found["addresses"].clone()).into_iter().map(|ip| LoadBalancerIngress {
        ip: ip.as_str().unwrap_or_default().to_owned(),
        ip_mode: IngressIpMode::Vip.into(),
        ..Default::default()
    });
    LoadBalancer {
        service: Some(ServiceRef { namespace, name, uid }),
        name: text(found, "name"),
        state: if active { LoadBalancerState::Active } else { LoadBalancerState::Pending }.into(),
        ingress: ingress.collect(),
        applied_digest: if active { text(tags, "digest") } else { String::new() },
        ownership: Ownership::ByUid.into(),
        ..Default::default()
    }
}

#[async_trait]
impl LoadBalancers for Cloud {
    async fn ensure_load_balancer(
        &self,
        ctx: &CallContext,
        request: EnsureLoadBalancerRequest,
    ) -> Result<EnsureLoadBalancerResponse> {
        let path = path_of(ctx, request.service.as_ref().and_then(|service| service.r#ref.as_ref()));
        let made = self.call("PUT", &path, wanted(ctx, &request)?).await?;
        let in_progress = (made["status"] != "active").then(|| InProgress {
            reason: "BUILDING".to_owned(),
            message: "the cloud builds the balancer".to_owned(),
            retry_after: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        });
        let load_balancer = Some(balancer(&made));
        Ok(EnsureLoadBalancerResponse { load_balancer, in_progress, ..Default::default() })
    }

    async fn batch_update_load_balancers(
        &self,
        ctx: &CallContext,
        request: BatchUpdateLoadBalancersRequest,
    ) -> Result<BatchUpdateLoadBalancersResponse> {
        let servers = servers_of(request.backends.as_ref());
        let update = async |item: LoadBalancerUpdate| {
            let of = item.service.unwrap_or_default().r#ref.unwrap_or_default();
            let change = json!({ "servers": servers, "tags": { "digest": item.desired_digest } });
            let done = self.call("PATCH", &path_of(ctx, Some(&of)), change).await;
            let error = done.err().map(|failure| match failure {
                Failure::NotFound => ProviderError::needs_ensure(&of.uid), // An update creates nothing.
                failure => failure.into(),
            });
            let outcome = if error.is_none() { UpdateOutcome::Updated } else { UpdateOutcome::NotUpdated };
            LoadBalancerUpdateResult {
                service_uid: of.uid,
                outcome: outcome.into(),
                error: error.as_ref().map(ProviderError::to_item),
                ..Default::default()
            }
        };
        let results = stream::iter(request.items).map(update).buffered(AT_ONCE).collect().await;
        Ok(BatchUpdateLoadBalancersResponse { results })
    }

    async fn delete_load_balancer(
        &self,
        ctx: &CallContext,
        request: DeleteLoadBalancerRequest,
    ) -> Result<DeleteLoadBalancerResponse> {
        let path = path_of(ctx, request.service.as_ref());
        self.call("DELETE", &path, Value::Null).await?;
        Ok(DeleteLoadBalancerResponse::default())
    }

    async fn get_load_balancer(
        &self,
        ctx: &CallContext,
        request: GetLoadBalancerRequest,
    ) -> Result<GetLoadBalancerResponse> {
        let absent = LoadBalancerState::Absent.into();
        let found = match self.call("GET", &path_of(ctx, request.service.as_ref()), Value::Null).await {
            Ok(found) => balancer(&found),
            Err(Failure::NotFound) => {
                LoadBalancer { service: request.service, state: absent, ..Default::default() }
            }
            Err(failure) => return Err(failure.into()),
        };
        Ok(GetLoadBalancerResponse { load_balancer: Some(found) })
    }

    async fn list_load_balancers(
        &self,
        ctx: &CallContext,
        request: ListLoadBalancersRequest,
    ) -> Result<ListLoadBalancersResponse> {
        let path = format!("/balancers?cluster={}", escaped(ctx.cluster_uid()));
        let all = list(self.call("GET", &path, Value::Null).await?);
        let (page, next_page_token) = paging::page(&request, all, |one| text(one, "name"))?;
        let load_balancers = page.iter().map(balancer).collect();
        Ok(ListLoadBalancersResponse { load_balancers, next_page_token, ..Default::default() })
    }
}

fn route(found: &Value) -> Route {
    let target = NodeRef {
        name: text(&found["tags"], "node"),
        provider_id: format!("{PREFIX}{}", text(found, "server")),
        ..Default::default()
    };
    let broken = found["status"] == "broken";
    Route {
        id: text(found, "name"),
        destination_cidr: text(found, "cidr"),
        target: Some(target),
        state: if broken { RouteState::Blackhole } else { RouteState::Active }.into(),
        ownership: Ownership::ByUid.into(),
    }
}

/// The name of a route has the cluster's uid and the destination.
#[async_trait]
impl Routes for Cloud {
    async fn list_routes(&self, ctx: &CallContext, request: ListRoutesRequest) -> Result<ListRoutesResponse> {
        let path = format!("/routes?cluster={}", escaped(ctx.cluster_uid()));
        let all = list(self.call("GET", &path, Value::Null).await?);
        let (page, next_page_token) = paging::page(&request, all, |one| text(one, "name"))?;
        let routes = page.iter().map(route).collect();
        Ok(ListRoutesResponse { routes, next_page_token, ..Default::default() })
    }

    async fn batch_ensure_routes(
        &self,
        ctx: &CallContext,
        request: BatchEnsureRoutesRequest,
    ) -> Result<BatchEnsureRoutesResponse> {
        let cluster = ctx.cluster_uid();
        let ensure = async |item: RouteToEnsure| {
            let (node, cidr) = (item.target.unwrap_or_default(), item.destination_cidr);
            // The cloud finds a server by its name, too, as long as the node has no provider ID.
            let server = node.provider_id.strip_prefix(PREFIX).unwrap_or(&node.name);
            let tags = json!({ "cluster": cluster, "node": node.name });
            let asked = json!({ "cidr": cidr, "server": server, "tags": tags });
            let path = format!("/routes/{}", escaped(&format!("{cluster} {cidr}")));
            let mut result = RouteResult { key: item.key, ..Default::default() };
            match self.call("PUT", &path, asked).await {
                Ok(made) => result.route = Some(route(&made)),
                Err(Failure::NotFound) => {
                    result.error = Some(ProviderError::instance_not_found(&node.name).to_item());
                }
                Err(failure) => result.error = Some(ProviderError::from(failure).to_item()),
            }
            result
        };
        let results = stream::iter(request.items).map(ensure).buffered(AT_ONCE).collect().await;
        Ok(BatchEnsureRoutesResponse { results })
    }

    /// The cloud compares the target, so that nobody changes it in between.
    async fn batch_delete_routes(
        &self,
        ctx: &CallContext,
        request: BatchDeleteRoutesRequest,
    ) -> Result<BatchDeleteRoutesResponse> {
        let delete = async |item: RouteToDelete| {
            let listed = item.route.unwrap_or_default();
            let ours = listed.id.starts_with(&format!("{} ", ctx.cluster_uid()));
            let target = listed.target.clone().unwrap_or_default().provider_id;
            let server = escaped(target.strip_prefix(PREFIX).unwrap_or_default());
            let path = format!("/routes/{}?server={server}", escaped(&listed.id));
            let error = if listed.ownership() == Ownership::ByUid && ours {
                self.call("DELETE", &path, Value::Null).await.err().map(|failure| match failure {
                    Failure::Changed => ProviderError::route_changed(&listed.id),
                    failure => failure.into(),
                })
            } else {
                Some(ProviderError::owned_by_other_cluster(&listed.id))
            };
            let error = error.as_ref().map(ProviderError::to_item);
            RouteDeletion { key: item.key, error, ..Default::default() }
        };
        let results = stream::iter(request.items).map(delete).buffered(AT_ONCE).collect().await;
        Ok(BatchDeleteRoutesResponse { results })
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let flags = Flags::parse();
    telemetry::init(flags.serve.log_format, &flags.serve.log_level)?;
    let token = std::fs::read_to_string(&flags.token_file).context("--token-file")?.trim().to_owned();
    let http = legacy::Client::builder(TokioExecutor::new()).build_http();
    let cloud = Cloud(Arc::new(Client { url: flags.cloud, token, http, last: Mutex::default() }));
    let capabilities = [Capability::InstancesWatch, Capability::DurableDigest, Capability::RouteOwnership];
    let bookmarks = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    let provider = Provider::builder("small")
        .provider_id_prefix(PREFIX)
        .capabilities(GetCapabilitiesResponse {
            capabilities: capabilities.map(i32::from).to_vec(),
            intervals: Some(Intervals { bookmark_interval: bookmarks, ..Default::default() }),
            ..Default::default()
        })
        .cloud_provider(cloud.clone())
        .instances(cloud.clone())
        .load_balancers(cloud.clone())
        .routes(cloud)
        .build()?;
    Ok(cloudprovider_sdk::serve(provider, flags.serve).await?)
}
