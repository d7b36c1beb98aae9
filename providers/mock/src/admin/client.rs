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

    /// Terminates a machine; it is seen going for `linger`, or the cloud's own time.
    pub async fn terminate_instance(&self, reference: &str, linger: Option<Duration>) -> Result<Instance> {
        let wish = json!({"linger_ms": linger.map(duration::millis)});
        self.call(Method::POST, &["instances", reference, "terminate"], None, &wish).await
    }

    /// Takes all faults away.
    pub async fn clear_faults(&self) -> Result<()> {
        self.call::<serde::de::IgnoredAny>(Method::DELETE, &["faults"], None, &()).await.map(drop)
    }
}

/// One method for each row: what it takes, what it gives, and the request that it makes.
macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident($($taken:ident: $type:ty),*) -> $given:ty: $method:ident $path:expr $(, $body:ident)?;)*) => {
        #[expect(clippy::missing_errors_doc, reason = "all alike: the door does not answer, or refuses")]
        impl Client {$(
            $(#[$doc])*
            pub async fn $name(&self $(, $taken: &$type)*) -> Result<$given> {
                let body = ($($body)?);
                self.call(Method::$method, &$path, None, &body).await
            }
        )*}
    };
}

requests! {
    /// Who answers.
    info() -> Info: GET ["info"];
    /// All machines.
    instances() -> Vec<Instance>: GET ["instances"];
    /// One machine.
    instance(reference: str) -> Instance: GET ["instances", reference];
    /// Makes machines.
    create_instances(wish: NewInstances) -> Vec<Instance>: POST ["instances"], wish;
    /// Changes a machine.
    patch_instance(reference: str, patch: InstancePatch) -> Instance: PATCH ["instances", reference], patch;
    /// Stops a machine.
    stop_instance(reference: str) -> Instance: POST ["instances", reference, "stop"];
    /// Starts a stopped machine.
    start_instance(reference: str) -> Instance: POST ["instances", reference, "start"];
    /// Takes a machine away at once.
    delete_instance(reference: str) -> Instance: DELETE ["instances", reference];
    /// All balancers.
    balancers() -> Vec<Balancer>: GET ["balancers"];
    /// One balancer.
    balancer(reference: str) -> Balancer: GET ["balancers", reference];
    /// Ids of the balancers that have the machine of this node behind them.
    balancers_with(node: str) -> Vec<String>: GET ["balancers", "behind", node];
    /// Makes a former controller's balancer, or another cluster's.
    create_legacy_balancer(wish: NewLegacyBalancer) -> Balancer: POST ["balancers", "legacy"], wish;
    /// Changes a balancer behind the provider's back: it drifts.
    patch_balancer(reference: str, patch: BalancerPatch) -> Balancer: PATCH ["balancers", reference], patch;
    /// Takes a balancer away behind the provider's back.
    delete_balancer(reference: str) -> Balancer: DELETE ["balancers", reference];
    /// What the cloud holds for a cluster, beside its machines.
    held(cluster_uid: str) -> Vec<Held>: GET ["held", cluster_uid];
    /// All routes.
    routes() -> Vec<ListedRoute>: GET ["routes"];
    /// Makes a route behind the provider's back.
    create_route(wish: NewRoute) -> ListedRoute: POST ["routes"], wish;
    /// Re-points a route behind the provider's back.
    patch_route(reference: str, patch: RoutePatch) -> ListedRoute: PATCH ["routes", reference], patch;
    /// Takes a route away behind the provider's back.
    delete_route(reference: str) -> Route: DELETE ["routes", reference];
    /// All volumes.
    volumes() -> Vec<Volume>: GET ["volumes"];
    /// Makes or replaces a volume.
    put_volume(volume: Volume) -> Volume: POST ["volumes"], volume;
    /// All hosted clusters.
    clusters() -> Vec<HostedCluster>: GET ["clusters"];
    /// Makes or replaces a hosted cluster.
    put_cluster(cluster: HostedCluster) -> HostedCluster: POST ["clusters"], cluster;
    /// All SSH keys.
    ssh_keys() -> Vec<SshKey>: GET ["ssh-keys"];
    /// Sets all upper bounds.
    set_quota(quota: Quota) -> Quota: PUT ["quota"], quota;
    /// Changes how things are.
    patch_conditions(patch: ConditionsPatch) -> Conditions: PATCH ["conditions"], patch;
    /// Calls that came in, in their order.
    calls() -> Vec<Call>: GET ["calls"];
    /// What was seen of each RPC since the last reset, and of the cloud's own API.
    call_summary() -> CallSummary: GET ["calls", "summary"];
    /// Forgets all calls.
    reset_calls() -> (): DELETE ["calls"];
    /// All faults, spent ones among them.
    faults() -> Vec<FaultStatus>: GET ["faults"];
    /// Adds a fault.
    add_fault(fault: Fault) -> FaultStatus: POST ["faults"], fault;
}

fn refused(status: StatusCode, body: &[u8]) -> ClientError {
    let message = serde_json::from_slice::<Refusal>(body)
        .map_or_else(|_| format!("the admin door answers {status}"), |refusal| refusal.error);
    ClientError::Refused { status: status.as_u16(), message }
}
