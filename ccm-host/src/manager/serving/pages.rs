//! Information about the process: `/configz`, `/flagz`, `/statusz`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controllers::node_ipam::settings::Allocation;
use crate::flag::{self, duration};
use crate::manager::build_info;
use crate::manager::flags::Settings;

const NAME: &str = "cloud-controller-manager";
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                       guarantees and is for debugging purposes only.";

/// All pages, built once: nothing in them changes but the time.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    configz: Value,
    flagz: String,
    started: Timestamp,
}

impl Pages {
    pub(super) fn new(settings: &Settings) -> Self {
        let flags: String = settings.flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        let inner = Inner {
            configz: configz(settings),
            flagz: format!("{NAME} flagz\n{WARNING}\n\n{flags}"),
            started: Timestamp::now(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(super) fn router(self) -> Router {
        Router::new()
            .route("/configz", get(show_configz))
            .route("/flagz", get(show_flagz))
            .route("/statusz", get(show_statusz))
            .with_state(self)
    }
}

impl Inner {
    fn statusz(&self, now: Timestamp) -> String {
        let up = now.duration_since(self.started).as_secs();
        format!(
            "{NAME} statusz\n{WARNING}\n\nStarted: {started}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\n\
             Binary version: {version}\nPaths: /configz /flagz /healthz /livez /metrics /readyz /shadow /state /status /statusz\n",
            started = self.started.strftime("%Y-%m-%dT%H:%M:%SZ"),
            hours = up / 3600,
            minutes = up / 60 % 60,
            seconds = up % 60,
            version = build_info::raw(),
        )
    }
}

async fn show_configz(State(pages): State<Pages>) -> Json<Value> {
    Json(pages.inner.configz.clone())
}

async fn show_flagz(State(pages): State<Pages>) -> Response {
    text(pages.inner.flagz.clone())
}

async fn show_statusz(State(pages): State<Pages>) -> Response {
    text(pages.inner.statusz(Timestamp::now()))
}

fn text(body: String) -> Response {
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    ([kind], body).into_response()
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
        Some(Allocation::Cloud { .. }) => "CloudAllocator",
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
