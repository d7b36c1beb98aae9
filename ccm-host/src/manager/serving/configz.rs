//! `/configz`, in the format of upstream's `CloudControllerManagerConfiguration`; host-only settings are beside it.

use serde_json::{Value, json};

use crate::controllers::node_ipam::settings::Allocation;
use crate::flag::duration::text;
use crate::manager::flags::Settings;

/// Keys are upstream's Go names, in their mixed case; durations are texts.
pub(super) fn configz(settings: &Settings) -> Value {
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
            "NodeStatusUpdateFrequency": text(settings.controllers.nodes.node_status_update_frequency),
            "Webhook": { "Webhooks": [] },
        },
        "ccm-host": {
            "providers": settings.providers.iter()
                .map(|provider| json!({ "name": provider.name, "endpoint": provider.endpoint.to_string() }))
                .collect::<Vec<_>>(),
            "nodeDeletion": {
                "grace": text(settings.controllers.lifecycle.node_deletion_grace),
                "confirmations": settings.controllers.lifecycle.node_deletion_confirmations,
                "maxShare": settings.controllers.lifecycle.node_deletion_max_share.to_string(),
                "window": text(settings.controllers.lifecycle.node_deletion_window),
            },
            "nodeShutdown": {
                "policy": settings.controllers.lifecycle.node_shutdown_policy.name(),
                "grace": text(settings.controllers.lifecycle.node_shutdown_grace),
            },
            "loadBalancerResyncPeriod": text(settings.controllers.services.load_balancer_resync_period),
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
            "leaseDuration": text(election.leader_elect_lease_duration),
            "renewDeadline": text(election.leader_elect_renew_deadline),
            "retryPeriod": text(election.leader_elect_retry_period),
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
        "UseServiceAccountCredentials": false,
        "RouteReconciliationPeriod": text(settings.controllers.routes.route_reconciliation_period),
        "NodeMonitorPeriod": text(settings.controllers.lifecycle.node_monitor_period),
        "ClusterName": settings.kube.cluster_name,
        "ClusterCIDR": cluster.join(","),
        "AllocateNodeCIDRs": settings.controllers.cidrs.allocation.is_some(),
        "CIDRAllocatorType": allocator,
        "ConfigureCloudRoutes": settings.controllers.routes.configure_cloud_routes,
    })
}
