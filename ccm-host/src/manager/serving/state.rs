//! Shows what the host knows: `/state` and below, and `/shadow`, as JSON; and `POST /resync`.
//!
//! In: a [`Source`], which the assembly gives once there is something to show. Out: the documents of the crate
//! `ccm-state`. Nothing is computed before it is requested; what a provider has is read through its usual limits.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use axum::{
    Json, Router,
    extract::{Path, RawQuery, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use ccm_state::{
    HostState, NodeState, Resync, ServiceState,
    inventory::{Inventory, Kind},
    shadow::ShadowReport,
};
use serde::Serialize;

use crate::manager::answer::{headers, refusal};
use ccm_cloud::{CloudError, Question};

/// Whoever knows the state of the host.
#[async_trait]
pub trait Source: std::fmt::Debug + Send + Sync {
    fn state(&self) -> HostState;

    /// `None` if there is no such node.
    fn node(&self, name: &str) -> Option<NodeState>;

    /// `None` if no controller looks after a Service of this name.
    fn service(&self, namespace: &str, name: &str) -> Option<ServiceState>;

    /// Ensures again what is applied; an error says why this host cannot.
    fn resync(&self) -> Result<Resync, String>;

    /// What would be different with this host; `None` unless it runs in shadow mode.
    fn shadow(&self) -> Option<ShadowReport>;

    /// The names of the providers.
    fn providers(&self) -> Vec<String>;

    /// `None` if there is no such provider.
    async fn inventory(&self, provider: &str, question: &Question) -> Option<Result<Inventory, CloudError>>;
}

/// Where the state is shown; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Door(Arc<OnceLock<Arc<dyn Source>>>);

impl Door {
    /// Shows this from now on.
    pub fn open(&self, source: Arc<dyn Source>) {
        // Only the first one counts, and there is only one.
        let _ = self.0.set(source);
    }

    fn source(&self) -> Result<&Arc<dyn Source>, NoDocument> {
        self.0.get().ok_or_else(|| {
            let why = "the host is starting and has no data yet: /readyz shows what it waits for";
            NoDocument(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", why.to_owned())
        })
    }

    pub(super) fn router(self) -> Router {
        Router::new()
            .route("/state", get(host))
            .route("/shadow", get(shadow))
            .route("/state/nodes/{name}", get(node))
            .route("/state/services/{namespace}/{name}", get(service))
            .route("/resync", post(resync))
            .route("/state/providers/{name}/{kind}", get(inventory))
            .route("/state/providers/{name}/clusters/{cluster}", get(cluster))
            .with_state(self)
    }
}

/// Why there is no document, in the form that Kubernetes clients read.
#[derive(Debug)]
struct NoDocument(StatusCode, &'static str, String);

impl NoDocument {
    fn bad(why: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, "BadRequest", why.into())
    }

    fn not_found(why: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, "NotFound", why.into())
    }
}

impl IntoResponse for NoDocument {
    fn into_response(self) -> Response {
        let Self(code, reason, message) = self;
        refusal(code, reason, &message)
    }
}

type Answer = Result<Response, NoDocument>;

fn show(document: &impl Serialize) -> Response {
    (headers(), Json(document)).into_response()
}

async fn host(State(door): State<Door>) -> Answer {
    Ok(show(&door.source()?.state()))
}

async fn shadow(State(door): State<Door>) -> Answer {
    let report = door.source()?.shadow().ok_or_else(|| {
        NoDocument::not_found(
            "this host does not run in shadow mode: it acts; --shadow makes one that only compares",
        )
    })?;
    Ok(show(&report))
}

async fn node(State(door): State<Door>, Path(name): Path<String>) -> Answer {
    let node = door.source()?.node(&name).ok_or_else(|| {
        NoDocument::not_found(format!(
            "there is no node {name:?} in this cluster: kubectl get nodes lists them"
        ))
    })?;
    Ok(show(&node))
}

async fn service(State(door): State<Door>, Path((namespace, name)): Path<(String, String)>) -> Answer {
    let service = door.source()?.service(&namespace, &name).ok_or_else(|| {
        NoDocument::not_found(format!(
            "no Service {namespace}/{name} has or wants a load balancer of this host; a replica that does not lead knows none"
        ))
    })?;
    Ok(show(&service))
}

/// A page of another origin can make a browser send a POST with the user's certificate, but none of this type.
async fn resync(State(door): State<Door>, headers: HeaderMap) -> Answer {
    let source = door.source()?;
    if headers.get(header::CONTENT_TYPE).is_none_or(|kind| kind != "application/json") {
        return Err(NoDocument::bad("send the header Content-Type: application/json, as ccmctl resync does"));
    }
    let refused = |why| NoDocument(StatusCode::CONFLICT, "Conflict", why);
    Ok(show(&source.resync().map_err(refused)?))
}

async fn inventory(
    State(door): State<Door>,
    Path((name, kind)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Answer {
    let question = question(&kind, query.as_deref().unwrap_or_default())?;
    ask(&door, &name, &question).await
}

async fn cluster(State(door): State<Door>, Path((name, cluster)): Path<(String, String)>) -> Answer {
    ask(&door, &name, &Question::Cluster(cluster)).await
}

async fn ask(door: &Door, provider: &str, question: &Question) -> Answer {
    let source = door.source()?;
    match source.inventory(provider, question).await {
        None => {
            let known = source.providers().join(", ");
            Err(NoDocument::not_found(format!("there is no provider {provider:?}: this host has {known}")))
        }
        Some(Ok(inventory)) => Ok(show(&inventory)),
        Some(Err(error)) => {
            let message = format!("provider {provider:?} did not answer: {error} ({})", error.label());
            Err(NoDocument(StatusCode::BAD_GATEWAY, "ProviderFailed", message))
        }
    }
}

fn question(kind: &str, query: &str) -> Result<Question, NoDocument> {
    let all = Kind::ALL.map(Kind::name).join(", ");
    let kind = Kind::of_name(kind)
        .ok_or_else(|| NoDocument::not_found(format!("{kind:?} cannot be listed: use one of {all}")))?;
    Ok(match kind {
        Kind::Instances => Question::Instances,
        Kind::LoadBalancers => Question::LoadBalancers,
        Kind::Routes => Question::Routes,
        Kind::Clusters => Question::Clusters,
        Kind::Volumes => {
            let given = |wanted: &'static str| {
                form_urlencoded::parse(query.as_bytes())
                    .filter(move |(key, value)| key == wanted && !value.is_empty())
                    .map(|(_, value)| value.into_owned())
            };
            let mut ids: Vec<String> = given("id").collect();
            ids.sort();
            ids.dedup();
            let plugin = given("plugin").next();
            match (plugin, ids) {
                (Some(plugin), ids) if !ids.is_empty() => Question::Volumes { plugin, ids },
                _ => {
                    return Err(NoDocument::bad(
                        "volumes cannot be listed: give plugin=NAME and id=ID, for example \
                         ?plugin=kubernetes.io/aws-ebs&id=vol-1",
                    ));
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_needs_all_its_parts() {
        let volumes = |ids: &[&str]| {
            let ids = ids.iter().map(|&id| id.to_owned()).collect();
            Some(Question::Volumes { plugin: "kubernetes.io/ebs".to_owned(), ids })
        };
        let rows = [
            ("instances", "", Some(Question::Instances)),
            ("load-balancers", "x=y", Some(Question::LoadBalancers)),
            ("volumes", "plugin=kubernetes.io%2Febs&id=b&id=a&id=b", volumes(&["a", "b"])),
            ("volumes", "plugin=kubernetes.io/ebs", None),
            ("volumes", "id=a", None),
            ("pods", "", None),
        ];
        for (kind, query, want) in rows {
            assert_eq!(question(kind, query).ok(), want, "{kind}?{query}");
        }
    }
}
