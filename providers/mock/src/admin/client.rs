//! The admin door from Rust: JSON out, JSON in.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::TokioExecutor,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use prost::bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::time::Instant;

use super::{Info, Refusal};
use crate::{
    calls::{Call, CallSummary},
    cloud::{
        Balancer, BalancerPatch, Conditions, ConditionsPatch, Held, HostedCluster, Instance, InstancePatch,
        ListedRoute, NewInstances, NewLegacyBalancer, NewRoute, Quota, Route, RoutePatch, SshKey, Volume,
    },
    duration,
    fault::{Fault, FaultStatus},
};

type Result<T, E = ClientError> = std::result::Result<T, E>;

/// How often a file is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody wrote an address.
    #[error("no admin address appeared in {path}; is provider-mock running with --admin-address-file?")]
    NoAddress {
        /// The file.
        path: PathBuf,
    },
    /// The door does not answer.
    #[error("the admin door at {address} does not answer; is provider-mock running with --admin-address?")]
    Unreachable {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The door refuses.
    #[error("{message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// What it says.
        message: String,
    },
    /// The door says something that cannot be read.
    #[error("the admin door's answer cannot be read; is it of another version?")]
    Content {
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

impl ClientError {
    /// What was asked for is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}

/// Speaks to the admin door of one mock. Cheap to clone.
///
/// References to things: instances by id, provider ID or name; balancers by id, name, Service uid or `namespace/name`;
/// routes by id or CIDR.
#[derive(Debug, Clone)]
pub struct Client {
    address: SocketAddr,
    http: Http<HttpConnector, Full<Bytes>>,
}

#[expect(clippy::missing_errors_doc, reason = "all alike: the door does not answer, or refuses")]
impl Client {
    /// A client of the door at this address.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self { address, http: Http::builder(TokioExecutor::new()).build_http() }
    }

    /// A client of the door whose address is written to this file, once it is there: by then gRPC is served, too.
    pub async fn from_address_file(path: impl AsRef<Path>, patience: Duration) -> Result<Self> {
        let path = path.as_ref();
        let end = Instant::now() + patience;
        loop {
            if let Some(address) =
                tokio::fs::read_to_string(path).await.ok().and_then(|text| text.trim().parse().ok())
            {
                return Ok(Self::new(address));
            }
            if Instant::now() > end {
                return Err(ClientError::NoAddress { path: path.to_owned() });
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Where the door is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// One exchange: the segments of the path, which need no escaping, and the body, `()` for none.
    pub async fn call<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &[impl AsRef<str>],
        query: Option<&str>,
        body: &impl Serialize,
    ) -> Result<A> {
        let unreachable = |source: Box<dyn std::error::Error + Send + Sync>| ClientError::Unreachable {
            address: self.address,
            source,
        };
        let segments = path.iter().map(|segment| utf8_percent_encode(segment.as_ref(), NON_ALPHANUMERIC));
        let path: String = segments.map(|segment| format!("/{segment}")).collect();
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let body = serde_json::to_vec(body).map_err(|source| ClientError::Content { source })?;
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}{query}", self.address))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body))
            .map_err(|error| unreachable(error.into()))?;
        let exchange = async {
            let answer = self.http.request(request).await.map_err(|error| unreachable(error.into()))?;
            let status = answer.status();
            let body = answer.into_body().collect().await.map_err(|error| unreachable(error.into()))?;
            Ok((status, body.to_bytes()))
        };
        let answered = tokio::time::timeout(PATIENCE, exchange).await;
        let (status, body) = answered.map_err(|late| unreachable(late.into()))??;
        if !status.is_success() {
            return Err(refused(status, &body));
        }
        serde_json::from_slice(&body).map_err(|source| ClientError::Content { source })
    }

    async fn get<A: DeserializeOwned>(&self, path: &[&str]) -> Result<A> {
        self.call(Method::GET, path, None, &()).await
    }

    async fn post<A: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> Result<A> {
        self.call(Method::POST, path, None, body).await
    }

    async fn patch<A: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> Result<A> {
        self.call(Method::PATCH, path, None, body).await
    }

    async fn delete<A: DeserializeOwned>(&self, path: &[&str]) -> Result<A> {
        self.call(Method::DELETE, path, None, &()).await
    }

    /// Who answers.
    pub async fn info(&self) -> Result<Info> {
        self.get(&["info"]).await
    }

    /// All machines.
    pub async fn instances(&self) -> Result<Vec<Instance>> {
        self.get(&["instances"]).await
    }

    /// One machine.
    pub async fn instance(&self, reference: &str) -> Result<Instance> {
        self.get(&["instances", reference]).await
    }

    /// Makes machines.
    pub async fn create_instances(&self, wish: &NewInstances) -> Result<Vec<Instance>> {
        self.post(&["instances"], wish).await
    }

    /// Changes a machine.
    pub async fn patch_instance(&self, reference: &str, patch: &InstancePatch) -> Result<Instance> {
        self.patch(&["instances", reference], patch).await
    }

    /// Stops a machine.
    pub async fn stop_instance(&self, reference: &str) -> Result<Instance> {
        self.post(&["instances", reference, "stop"], &()).await
    }

    /// Starts a stopped machine.
    pub async fn start_instance(&self, reference: &str) -> Result<Instance> {
        self.post(&["instances", reference, "start"], &()).await
    }

    /// Terminates a machine; it is seen going for `linger`, or the cloud's own time.
    pub async fn terminate_instance(&self, reference: &str, linger: Option<Duration>) -> Result<Instance> {
        let wish = json!({"linger_ms": linger.map(duration::millis)});
        self.post(&["instances", reference, "terminate"], &wish).await
    }

    /// Takes a machine away at once.
    pub async fn delete_instance(&self, reference: &str) -> Result<Instance> {
        self.delete(&["instances", reference]).await
    }

    /// All balancers.
    pub async fn balancers(&self) -> Result<Vec<Balancer>> {
        self.get(&["balancers"]).await
    }

    /// One balancer.
    pub async fn balancer(&self, reference: &str) -> Result<Balancer> {
        self.get(&["balancers", reference]).await
    }

    /// Ids of the balancers that have the machine of this node behind them.
    pub async fn balancers_with(&self, node: &str) -> Result<Vec<String>> {
        self.get(&["balancers", "behind", node]).await
    }

    /// Makes a former controller's balancer, or another cluster's.
    pub async fn create_legacy_balancer(&self, wish: &NewLegacyBalancer) -> Result<Balancer> {
        self.post(&["balancers", "legacy"], wish).await
    }

    /// Changes a balancer behind the provider's back: it drifts.
    pub async fn patch_balancer(&self, reference: &str, patch: &BalancerPatch) -> Result<Balancer> {
        self.patch(&["balancers", reference], patch).await
    }

    /// Takes a balancer away behind the provider's back.
    pub async fn delete_balancer(&self, reference: &str) -> Result<Balancer> {
        self.delete(&["balancers", reference]).await
    }

    /// What the cloud holds for a cluster, beside its machines.
    pub async fn held(&self, cluster_uid: &str) -> Result<Vec<Held>> {
        self.get(&["held", cluster_uid]).await
    }

    /// All routes.
    pub async fn routes(&self) -> Result<Vec<ListedRoute>> {
        self.get(&["routes"]).await
    }

    /// Makes a route behind the provider's back.
    pub async fn create_route(&self, wish: &NewRoute) -> Result<ListedRoute> {
        self.post(&["routes"], wish).await
    }

    /// Re-points a route behind the provider's back.
    pub async fn patch_route(&self, reference: &str, patch: &RoutePatch) -> Result<ListedRoute> {
        self.patch(&["routes", reference], patch).await
    }

    /// Takes a route away behind the provider's back.
    pub async fn delete_route(&self, reference: &str) -> Result<Route> {
        self.delete(&["routes", reference]).await
    }

    /// All volumes.
    pub async fn volumes(&self) -> Result<Vec<Volume>> {
        self.get(&["volumes"]).await
    }

    /// Makes or replaces a volume.
    pub async fn put_volume(&self, volume: &Volume) -> Result<Volume> {
        self.post(&["volumes"], volume).await
    }

    /// All hosted clusters.
    pub async fn clusters(&self) -> Result<Vec<HostedCluster>> {
        self.get(&["clusters"]).await
    }

    /// Makes or replaces a hosted cluster.
    pub async fn put_cluster(&self, cluster: &HostedCluster) -> Result<HostedCluster> {
        self.post(&["clusters"], cluster).await
    }

    /// All SSH keys.
    pub async fn ssh_keys(&self) -> Result<Vec<SshKey>> {
        self.get(&["ssh-keys"]).await
    }

    /// Sets all upper bounds.
    pub async fn set_quota(&self, quota: &Quota) -> Result<Quota> {
        self.call(Method::PUT, &["quota"], None, quota).await
    }

    /// Changes how things are.
    pub async fn patch_conditions(&self, patch: &ConditionsPatch) -> Result<Conditions> {
        self.patch(&["conditions"], patch).await
    }

    /// Calls that came in, in their order.
    pub async fn calls(&self) -> Result<Vec<Call>> {
        self.get(&["calls"]).await
    }

    /// What was seen of each RPC since the last reset, and of the cloud's own API.
    pub async fn call_summary(&self) -> Result<CallSummary> {
        self.get(&["calls", "summary"]).await
    }

    /// Forgets all calls.
    pub async fn reset_calls(&self) -> Result<()> {
        self.delete(&["calls"]).await
    }

    /// All faults, spent ones among them.
    pub async fn faults(&self) -> Result<Vec<FaultStatus>> {
        self.get(&["faults"]).await
    }

    /// Adds a fault.
    pub async fn add_fault(&self, fault: &Fault) -> Result<FaultStatus> {
        self.post(&["faults"], fault).await
    }

    /// Takes all faults away.
    pub async fn clear_faults(&self) -> Result<()> {
        self.delete::<serde::de::IgnoredAny>(&["faults"]).await.map(drop)
    }
}

fn refused(status: StatusCode, body: &[u8]) -> ClientError {
    let message = serde_json::from_slice::<Refusal>(body)
        .map_or_else(|_| format!("the admin door answers {status}"), |refusal| refusal.error);
    ClientError::Refused { status: status.as_u16(), message }
}
