//! The admin door's server: answers or refuses requests as the table of requests says.

use std::fmt::Display;

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

use crate::{
    cloud::{Balancer, CloudCalls, CloudError, State, existing},
    fault::Fault,
    mock::Mock,
};

/// What the door opens to.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) mock: Mock,
    /// Describes the mock.
    pub(crate) info: Value,
}

/// Routes every path to the table of requests. Segments are decoded, so a provider ID can be one.
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
    match door.answer(Asked { method, path: &path, filter, body }).await {
        Ok(answer) => Json(answer).into_response(),
        Err(Refused(status, error)) => (status, Json(json!({"error": error}))).into_response(),
    }
}

/// A request whose body is not parsed yet.
pub(super) struct Asked<'a> {
    pub(super) method: Method,
    pub(super) path: &'a [&'a str],
    pub(super) filter: CallFilter,
    body: Bytes,
}

impl Asked<'_> {
    pub(super) fn body<T: DeserializeOwned>(&self) -> Result<T, Refused> {
        serde_json::from_slice(&self.body).map_err(misfit)
    }
}

fn misfit(error: impl Display) -> Refused {
    Refused(StatusCode::BAD_REQUEST, format!("the body does not fit: {error}"))
}

/// Which calls to list; all by default.
#[derive(Debug, Deserialize)]
pub(super) struct CallFilter {
    /// Name of the RPC.
    pub(super) method: Option<String>,
    /// Only calls with a higher sequence.
    pub(super) since: Option<u64>,
    /// Only this many, the newest.
    pub(super) limit: Option<usize>,
}

/// Why the door refuses.
pub(super) struct Refused(StatusCode, String);

pub(super) type Answer = Result<Value, Refused>;

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

pub(super) fn nothing_there(method: &Method, path: &[&str]) -> Answer {
    let error = format!("{method} /{} is not known; the README lists all paths", path.join("/"));
    Err(Refused(StatusCode::NOT_FOUND, error))
}

pub(super) fn shown(value: impl Serialize) -> Answer {
    serde_json::to_value(value).map_err(|error| Refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

pub(super) fn all<T: Serialize>(things: impl Iterator<Item = T>) -> Answer {
    shown(things.collect::<Vec<_>>())
}

impl Door {
    pub(super) async fn change<R: Serialize>(
        &self,
        act: impl FnOnce(&mut State, Timestamp) -> Result<R, CloudError>,
    ) -> Answer {
        let now = self.mock.now();
        shown(self.mock.cloud.change(now, |state| act(state, now)).await??)
    }

    pub(super) fn cloud_calls(&self) -> CloudCalls {
        self.mock.look(|state| state.calls.lock().clone())
    }

    pub(super) fn add_fault(&self, fault: Value) -> Answer {
        let status = self.mock.faults.add(Fault::try_from(fault).map_err(misfit)?);
        tracing::info!(id = status.id, fault = status.fault.label(), "a fault was added");
        shown(status)
    }

    /// Returns how many were removed; removing none of a kind is not an error.
    pub(super) fn remove_faults(&self, reference: &str) -> Result<usize, CloudError> {
        let means = |id: u64, kind: &str| kind == reference || id.to_string() == reference;
        let removed = Some(self.mock.faults.remove(means));
        existing("fault", reference, removed.filter(|times| *times > 0 || reference.parse::<u64>().is_err()))
    }
}

/// How often the cloud was called, and how many of these calls change something.
pub(super) fn counted(calls: &CloudCalls) -> Value {
    let changes = calls.iter().filter(|(action, _)| action.ends_with(":write"));
    let changes: u64 = changes.map(|(_, times)| times).sum();
    json!({"calls": calls.values().sum::<u64>(), "changes": changes})
}

/// A balancer as the conformance suite reads it from the hook `inspect-load-balancer`.
pub(super) fn inspected(balancer: &Balancer) -> Value {
    // Without node ports, the nodes take what is for the balancer's own address.
    let has_node_ports = balancer.asked.allocate_node_ports != Some(false);
    let ports = balancer.ports.iter().map(|port| {
        let node_port = has_node_ports.then_some(port.node_port);
        json!({"protocol": port.protocol, "port": port.port, "node_port": node_port})
    });
    let ips = balancer.ingress.iter().filter_map(|way| way.ip);
    // A node without an instance gets no traffic.
    let targets = balancer.backends.iter().map(|backend| backend.provider_id.as_str());
    let check = balancer.health_check_port;
    json!({
        "ports": ports.collect::<Vec<_>>(),
        "families": ips.map(|ip| if ip.is_ipv4() { "IPv4" } else { "IPv6" }).collect::<Vec<_>>(),
        "source_ranges": balancer.source_ranges,
        "targets": targets.filter(|id| !id.is_empty()).collect::<Vec<_>>(),
        "health_check": (check > 0).then(|| json!({"port": check})),
        "client_ip_affinity": balancer.affinity_seconds > 0,
    })
}
