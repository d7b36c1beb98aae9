//! Pages about the process: `/configz`, `/flagz`, `/statusz`, and `/status`, which shows `/state` to people in a browser.
//!
//! The last is one file, served as it is. Its policy lets it run its own script, apply its own style and ask its own
//! origin; nothing else is loaded, and no text of the host becomes markup.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Html;
use axum::routing::get;
use axum::{Json, Router};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::manager::{answer::headers, build, flags::Settings};
use ccm_base::flag::{self, duration};
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
}
