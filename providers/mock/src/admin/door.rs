//! What stands behind each path of the admin door: one look at the cloud, or one change.

use std::time::Duration;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, Query, State as In},
    http::{Method, StatusCode},
    response::{IntoResponse as _, Response},
    routing::any,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{Info, Refusal};
use crate::{
    calls::CallSummary,
    cloud::{Balancer, CloudError, State},
    fault::FaultSpec,
    mock::Mock,
};

/// What the door opens to.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) mock: Mock,
    pub(crate) info: Info,
}

/// Every path leads to one of the tables below; its segments are decoded, so that a provider ID can be one.
pub(crate) fn router(door: Door) -> Router {
    Router::new()
        .route("/{resource}", any(serve))
        .route("/{resource}/{reference}", any(serve))
        .route("/{resource}/{reference}/{verb}", any(serve))
        .with_state(door)
}

async fn serve(
    In(door): In<Door>,
    method: Method,
    Path(path): Path<Vec<String>>,
    Query(filter): Query<CallFilter>,
    body: Bytes,
) -> Response {
    let path: Vec<_> = path.iter().map(String::as_str).collect();
    let body = Body(&body);
    let answer = match path[0] {
        "instances" | "instances-named" => door.instances(&method, &path, body).await,
        "balancers" | "routes" | "held" => door.network(&method, &path, body).await,
        "volumes" | "clusters" | "ssh-keys" | "quota" | "conditions" => {
            door.account(&method, &path, body).await
        }
        _ => door.provider(&method, &path, &filter, body),
    };
    match answer {
        Ok(answer) => Json(answer).into_response(),
        Err(Refused(status, error)) => (status, Json(Refusal { error })).into_response(),
    }
}

/// Which calls are wanted; all when nothing is said.
#[derive(Debug, Deserialize)]
struct CallFilter {
    /// Name of the RPC.
    method: Option<String>,
    /// Only calls with a higher sequence.
    since: Option<u64>,
    /// The newest so many.
    limit: Option<usize>,
}

/// How a termination is wished.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Termination {
    /// How long it is seen going; the cloud's own when left out.
    linger_ms: Option<u64>,
}

/// A body that is not read yet.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn read<T: DeserializeOwned>(&self) -> Result<T, Refused> {
        serde_json::from_slice(self.0)
            .map_err(|error| Refused(StatusCode::BAD_REQUEST, format!("the body is not as wanted: {error}")))
    }
}

/// Why the door does not do it.
struct Refused(StatusCode, String);

type Answer = Result<Value, Refused>;

impl From<CloudError> for Refused {
    fn from(error: CloudError) -> Self {
        let status = match error {
            CloudError::NotFound(_) => StatusCode::NOT_FOUND,
            CloudError::AlreadyExists(_) => StatusCode::CONFLICT,
            _ => StatusCode::BAD_REQUEST,
        };
        Self(status, error.to_string())
    }
}

impl From<anyhow::Error> for Refused {
    fn from(error: anyhow::Error) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

fn nothing_there(method: &Method, path: &[&str]) -> Answer {
    let error = format!("nothing answers {method} /{}; the README lists all paths", path.join("/"));
    Err(Refused(StatusCode::NOT_FOUND, error))
}

fn shown(value: impl Serialize) -> Answer {
    serde_json::to_value(value).map_err(|error| Refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn existing<T: Serialize>(what: &str, reference: &str, found: Option<T>) -> Answer {
    found.map_or_else(|| Err(CloudError::NotFound(format!("{what} {reference}")).into()), shown)
}

fn all<T: Serialize>(things: impl Iterator<Item = T>) -> Answer {
    shown(things.collect::<Vec<_>>())
}

impl Door {
    async fn change<R: Serialize>(
        &self,
        act: impl FnOnce(&mut State, Timestamp) -> Result<R, CloudError>,
    ) -> Answer {
        let now = self.mock.now();
        shown(self.mock.cloud.change(now, |state| act(state, now)).await??)
    }

    async fn instances(&self, method: &Method, path: &[&str], body: Body<'_>) -> Answer {
        match (method.as_str(), path) {
            ("GET", ["instances"]) => self.mock.look(|state| all(state.instances())),
            ("POST", ["instances"]) => {
                let wish = body.read()?;
                self.change(|state, now| state.create_instances(&wish, now)).await
            }
            ("GET", ["instances", name]) => {
                self.mock.look(|state| existing("instance", name, state.instance(name)))
            }
            ("PATCH", ["instances", name]) => {
                let patch = body.read()?;
                self.change(|state, _now| state.patch_instance(name, patch)).await
            }
            ("DELETE", ["instances", name]) => self.change(|state, _now| state.delete_instance(name)).await,
            ("DELETE", ["instances-named", prefix]) => {
                self.change(|state, _now| Ok(state.delete_instances(prefix))).await
            }
            ("POST", ["instances", name, "stop"]) => {
                self.change(|state, _now| state.stop_instance(name)).await
            }
            ("POST", ["instances", name, "start"]) => {
                self.change(|state, _now| state.start_instance(name)).await
            }
            ("POST", ["instances", name, "terminate"]) => {
                let linger = body.read::<Termination>()?.linger_ms.map(Duration::from_millis);
                self.change(|state, now| state.terminate_instance(name, linger, now)).await
            }
            _ => nothing_there(method, path),
        }
    }

    async fn network(&self, method: &Method, path: &[&str], body: Body<'_>) -> Answer {
        match (method.as_str(), path) {
            ("GET", ["balancers"]) => self.mock.look(|state| all(state.balancers())),
            ("GET", ["balancers", "behind", node]) => self.mock.look(|state| all(behind(state, node))),
            ("GET", ["balancers", "inspect", service_uid]) => {
                let of_service = |balancer: &&Balancer| balancer.service_uid == *service_uid;
                self.mock.look(|state| all(state.balancers().filter(of_service).map(inspected)))
            }
            ("POST", ["balancers", "legacy"]) => {
                let wish = body.read()?;
                self.change(|state, now| state.create_legacy_balancer(wish, now)).await
            }
            ("GET", ["balancers", name]) => {
                self.mock.look(|state| existing("load balancer", name, state.balancer(name)))
            }
            ("PATCH", ["balancers", name]) => {
                let patch = body.read()?;
                self.change(|state, _now| state.patch_balancer(name, patch)).await
            }
            ("DELETE", ["balancers", name]) => {
                self.change(|state, _now| state.remove_balancer_outside(name)).await
            }
            ("GET", ["routes"]) => self.mock.look(|state| all(state.routes())),
            ("POST", ["routes"]) => {
                let wish = body.read()?;
                self.change(|state, _now| state.create_route_outside(wish)).await
            }
            ("PATCH", ["routes", id]) => {
                let patch = body.read()?;
                self.change(|state, _now| state.patch_route(id, patch)).await
            }
            ("DELETE", ["routes", id]) => self.change(|state, _now| state.remove_route_outside(id)).await,
            ("GET", ["held", cluster_uid]) => self.mock.look(|state| shown(state.held(cluster_uid))),
            _ => nothing_there(method, path),
        }
    }

    async fn account(&self, method: &Method, path: &[&str], body: Body<'_>) -> Answer {
        match (method.as_str(), path) {
            ("GET", ["volumes"]) => self.mock.look(|state| all(state.volumes())),
            ("POST", ["volumes"]) => {
                let volume = body.read()?;
                self.change(|state, _now| state.put_volume(volume)).await
            }
            ("DELETE", ["volumes", id]) => self.change(|state, _now| state.delete_volume(id)).await,
            ("GET", ["clusters"]) => self.mock.look(|state| all(state.clusters())),
            ("POST", ["clusters"]) => {
                let cluster = body.read()?;
                self.change(|state, _now| state.put_cluster(cluster)).await
            }
            ("DELETE", ["clusters", name]) => self.change(|state, _now| state.delete_cluster(name)).await,
            ("GET", ["ssh-keys"]) => self.mock.look(|state| shown(state.ssh_keys())),
            ("GET", ["quota"]) => self.mock.look(|state| shown(state.quota)),
            ("PUT", ["quota"]) => {
                let quota = body.read()?;
                self.change(|state, _now| Ok(state.set_quota(quota))).await
            }
            ("GET", ["conditions"]) => self.mock.look(|state| shown(&state.conditions)),
            ("PATCH", ["conditions"]) => {
                let patch = body.read()?;
                self.change(|state, _now| Ok(state.patch_conditions(patch))).await
            }
            _ => nothing_there(method, path),
        }
    }

    fn provider(&self, method: &Method, path: &[&str], filter: &CallFilter, body: Body<'_>) -> Answer {
        match (method.as_str(), path) {
            ("GET", ["info"]) => shown(&self.info),
            ("GET", ["calls"]) => {
                let (since, limit) = (filter.since.unwrap_or(0), filter.limit.unwrap_or(usize::MAX));
                shown(self.mock.calls.list(filter.method.as_deref(), since, limit))
            }
            ("DELETE", ["calls"]) => {
                self.mock.calls.reset();
                self.mock.look(State::reset_cloud_calls);
                shown(())
            }
            ("GET", ["calls", "summary"]) => shown(CallSummary {
                methods: self.mock.calls.methods(),
                cloud: self.mock.look(State::cloud_calls),
            }),
            ("GET", ["calls", "count"]) => {
                let cloud = self.mock.look(State::cloud_calls);
                let changes = cloud.iter().filter(|(action, _)| action.ends_with(":write"));
                let changes: u64 = changes.map(|(_, times)| times).sum();
                shown(json!({"calls": cloud.values().sum::<u64>(), "changes": changes}))
            }
            ("GET", ["faults"]) => shown(self.mock.faults.list()),
            ("POST", ["faults"]) => {
                let status = self.mock.faults.add(body.read::<FaultSpec>()?.into_fault());
                tracing::info!(id = status.id, fault = status.fault.label(), "a fault stands");
                shown(status)
            }
            ("DELETE", ["faults"]) => shown(json!({"cleared": self.mock.faults.remove(|_id, _kind| true)})),
            ("DELETE", ["faults", reference]) => {
                let means = |id: u64, kind: &str| kind == *reference || id.to_string() == *reference;
                let cleared = self.mock.faults.remove(means);
                if cleared == 0 && reference.parse::<u64>().is_ok() {
                    return Err(CloudError::NotFound(format!("fault {reference}")).into());
                }
                shown(json!({"cleared": cleared}))
            }
            _ => nothing_there(method, path),
        }
    }
}

/// Ids of the balancers with this node's machine behind them: far less to read than all with all their backends.
fn behind(state: &State, node: &str) -> impl Iterator<Item = String> {
    let holds = move |balancer: &&Balancer| {
        let mut backends = balancer.backends.iter();
        backends.any(|backend| backend.node == node && !backend.provider_id.is_empty())
    };
    state.balancers().filter(holds).map(|balancer| balancer.id.clone())
}

/// A balancer as the conformance suite reads it from the hook `inspect-load-balancer`.
fn inspected(balancer: &Balancer) -> Value {
    let ports = balancer
        .ports
        .iter()
        .map(|port| json!({"protocol": port.protocol, "port": port.port, "node_port": port.node_port}));
    let ips = balancer.ingress.iter().filter_map(|way| way.ip);
    // A node without a machine gets nothing.
    let targets = balancer.backends.iter().map(|backend| backend.provider_id.as_str());
    let check = balancer.health_check_port;
    json!({
        "ports": ports.collect::<Vec<_>>(),
        "families": ips.map(|ip| if ip.is_ipv4() { "IPv4" } else { "IPv6" }).collect::<Vec<_>>(),
        "source_ranges": balancer.source_ranges,
        "targets": targets.filter(|id| !id.is_empty()).collect::<Vec<_>>(),
        "health_check": (check > 0).then(|| json!({"port": check})),
    })
}
