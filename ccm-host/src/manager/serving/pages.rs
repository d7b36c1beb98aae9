//! Pages about the process: `/configz`, `/flagz` and `/statusz`; what the host knows, `/state` and below, and `/shadow`, as
//! JSON; `POST /resync`; and `/status`, which shows `/state` to people in a browser.
//!
//! In: the settings, and a [`Source`], which the assembly gives once there is something to show. Out: documents, those of
//! the crate `ccm-state` among them. Nothing is computed before it is requested; what a provider has is read through its
//! usual limits.
//!
//! `/status` is one file, served as it is. Its policy lets it run its own script, apply its own style and ask its own
//! origin; nothing else is loaded, and no text of the host becomes markup.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use axum::{
    Json, Router,
    extract::{Path, RawQuery, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ccm_state::{
    HostState, NodeState, Resync, ServiceState,
    inventory::{Inventory, Kind},
    shadow::ShadowReport,
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::manager::{build, flags::Settings, headers, refusal};
use ccm_base::flag::{self, duration};
use ccm_cloud::{CloudError, Question};
use ccm_reconcile::settings::cidrs::Allocation;

const NAME: &str = "cloud-controller-manager";
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                       guarantees and is for debugging purposes only.";

const PAGE: &str = include_str!("pages/status.html");

/// Nothing in the pages changes but the time.
pub(super) fn router(settings: &Settings) -> Router {
    let flags: String = settings.flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    let flagz = format!("{NAME} flagz\n{WARNING}\n\n{flags}");
    let (configz, started) = (configz(settings), Timestamp::now());
    let router = Router::new()
        .route("/configz", get(async move || Json(configz)))
        .route("/flagz", get(async move || flagz))
        .route("/statusz", get(async move || statusz(started, Timestamp::now())));
    // Without the policy there is no page: base64 and its words are fit for a header.
    let Ok(policy) = HeaderValue::try_from(policy()) else { return router };
    let shielded: [(HeaderName, HeaderValue); 3] = [
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CONTENT_SECURITY_POLICY, policy),
    ];
    router.route("/status", get(async move || (headers(), shielded, Html(PAGE))))
}

fn statusz(started: Timestamp, now: Timestamp) -> String {
    let up = now.duration_since(started).as_secs();
    format!(
        "{NAME} statusz\n{WARNING}\n\nStarted: {started}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\n\
         Binary version: {version}\nPaths: /configz /flagz /healthz /livez /metrics /readyz /shadow /state /status /statusz\n",
        started = started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        hours = up / 3600,
        minutes = up / 60 % 60,
        seconds = up % 60,
        version = build(),
    )
}

/// `/configz`, in the format of upstream's `CloudControllerManagerConfiguration`; host-only settings are beside it. Keys
/// are upstream's Go names, in their mixed case; durations are texts.
fn configz(settings: &Settings) -> Value {
    json!({
        "cloudcontrollermanager.config.k8s.io": {
            "kind": "CloudControllerManagerConfiguration",
            "apiVersion": "cloudcontrollermanager.config.k8s.io/v1alpha1",
            "Generic": generic(settings),
            "KubeCloudShared": shared(settings),
            "NodeController": {
                "ConcurrentNodeSyncs": settings.controllers.nodes.concurrent_node_syncs,
                "ConcurrentNodeStatusUpdates": settings.controllers.nodes.status_workers(),
            },
            "ServiceController": { "ConcurrentServiceSyncs": settings.controllers.services.concurrent_service_syncs },
            "NodeStatusUpdateFrequency": duration::text(settings.controllers.nodes.node_status_update_frequency),
            "Webhook": { "Webhooks": flag::listed(&settings.webhooks.webhooks).collect::<Vec<_>>() },
        },
        "ccm-host": {
            "providers": settings.providers.iter()
                .map(|provider| json!({ "name": provider.name, "endpoint": provider.endpoint.to_string() }))
                .collect::<Vec<_>>(),
            "nodeDeletion": {
                "grace": duration::text(settings.controllers.lifecycle.node_deletion_grace),
                "confirmations": settings.controllers.lifecycle.node_deletion_confirmations,
                "maxShare": settings.controllers.lifecycle.node_deletion_max_share.to_string(),
                "window": duration::text(settings.controllers.lifecycle.node_deletion_window),
            },
            "nodeShutdown": {
                "policy": settings.controllers.lifecycle.node_shutdown_policy.name(),
                "grace": duration::text(settings.controllers.lifecycle.node_shutdown_grace),
            },
            "loadBalancerResyncPeriod": duration::text(settings.controllers.services.load_balancer_resync_period),
            "adoptLoadBalancers": settings.controllers.services.adopt_load_balancers,
            "deleteOrphanedLoadBalancers": settings.controllers.services.delete_orphaned_load_balancers,
        },
    })
}

fn generic(settings: &Settings) -> Value {
    let election = &settings.election;
    json!({
        "Port": settings.serving.address.map_or(0, |address| address.port()),
        "Address": settings.serving.address.map_or_else(String::new, |address| address.ip().to_string()),
        "ClientConnection": {
            "kubeconfig": settings.kube.kubeconfig.as_ref().map_or_else(String::new, |path| path.display().to_string()),
            "contentType": "application/json",
            "qps": settings.kube.kube_api_qps,
            "burst": settings.kube.kube_api_burst,
        },
        "LeaderElection": {
            "leaderElect": election.leader_elect,
            "leaseDuration": duration::text(election.leader_elect_lease_duration),
            "renewDeadline": duration::text(election.leader_elect_renew_deadline),
            "retryPeriod": duration::text(election.leader_elect_retry_period),
            "resourceLock": "leases",
            "resourceName": election.leader_elect_resource_name,
            "resourceNamespace": election.leader_elect_resource_namespace,
        },
        "Controllers": settings.enabled.iter().map(|controller| controller.name).collect::<Vec<_>>(),
        "Debugging": { "enableProfiling": false, "enableContentionProfiling": false },
        "LeaderMigrationEnabled": false,
    })
}

fn shared(settings: &Settings) -> Value {
    let cluster: Vec<String> = settings.controllers.cidrs.cluster.iter().map(ToString::to_string).collect();
    let allocator = match settings.controllers.cidrs.allocation {
        Some(Allocation::Cloud) => "CloudAllocator",
        Some(Allocation::Ranges { .. }) | None => "RangeAllocator",
    };
    json!({
        "CloudProvider": {
            "Name": settings.providers.iter().map(|provider| provider.name.as_str()).collect::<Vec<_>>().join(","),
            "CloudConfigFile": "",
        },
        "UseServiceAccountCredentials": settings.kube.use_service_account_credentials,
        "RouteReconciliationPeriod": duration::text(settings.controllers.routes.route_reconciliation_period),
        "NodeMonitorPeriod": duration::text(settings.controllers.lifecycle.node_monitor_period),
        "ClusterName": settings.kube.cluster_name,
        "ClusterCIDR": cluster.join(","),
        "AllocateNodeCIDRs": settings.controllers.cidrs.allocation.is_some(),
        "CIDRAllocatorType": allocator,
        "ConfigureCloudRoutes": settings.controllers.routes.configure_cloud_routes,
    })
}

/// The policy of `/status`, which names script and style by their digests.
fn policy() -> String {
    format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
        digest("script"),
        digest("style")
    )
}

fn digest(tag: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(content(tag))))
}

/// What is between the page's only pair of these tags.
fn content(tag: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("<{tag}>")).unwrap_or_default();
    rest.split_once(&format!("</{tag}>")).unwrap_or_default().0
}

/// Whoever knows the state of the host.
#[async_trait]
pub trait Source: std::fmt::Debug + Send + Sync {
    fn state(&self) -> HostState;

    /// `None` if there is no such node.
    fn node(&self, name: &str) -> Option<NodeState>;

    /// What the start of the controllers still waits for.
    fn starting(&self) -> Option<String>;

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
    let source = door.source()?;
    let service = source.service(&namespace, &name).ok_or_else(|| match source.starting() {
        Some(why) => {
            let why = format!("Service {namespace}/{name} is not looked at yet: {why}");
            NoDocument(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", why)
        }
        None => NoDocument::not_found(format!(
            "no Service {namespace}/{name} has or wants a load balancer of this host; a replica that does not lead knows none"
        )),
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
    fn the_page_is_whole_and_makes_no_markup_of_text() {
        for tag in ["script", "style"] {
            assert_eq!(PAGE.matches(&format!("<{tag}")).count(), 1, "{tag}");
            assert!(content(tag).len() > 500, "{tag}");
        }
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "style=",
            " src=",
            "href=",
            "@import",
        ] {
            assert!(!PAGE.contains(word), "{word}");
        }
        // The only address is the name of a namespace, which no browser fetches.
        assert_eq!(PAGE.matches("://").count(), 1);
        assert!(policy().starts_with("default-src 'none'; script-src 'sha256-"));
    }

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
