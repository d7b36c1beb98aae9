//! `/configz`, in the shape of upstream's `CloudControllerManagerConfiguration`; what only this host has is beside it.

use serde_json::{Value, json};

use crate::manager::duration::text;
use crate::manager::flags::{Allocation, Settings};

/// Keys are upstream's Go names, in their mixed case; durations are texts.
pub(super) fn configz(settings: &Settings) -> Value {
    json!({
        "cloudcontrollermanager.config.k8s.io": {
            "kind": "CloudControllerManagerConfiguration",
            "apiVersion": "cloudcontrollermanager.config.k8s.io/v1alpha1",
            "Generic": generic(settings),
            "KubeCloudShared": shared(settings),
            "NodeController": {
                "ConcurrentNodeSyncs": settings.nodes.workers,
                "ConcurrentNodeStatusUpdates": settings.nodes.status_workers,
            },
            "ServiceController": { "ConcurrentServiceSyncs": settings.services.workers },
            "NodeStatusUpdateFrequency": text(settings.nodes.status_update_frequency),
            "Webhook": { "Webhooks": [] },
        },
        "ccm-host": {
            "providers": settings.providers.iter()
                .map(|provider| json!({ "name": provider.name, "endpoint": provider.endpoint.to_string() }))
                .collect::<Vec<_>>(),
            "nodeDeletion": {
                "grace": text(settings.lifecycle.deletion_grace),
                "confirmations": settings.lifecycle.deletion_confirmations,
                "maxShare": settings.lifecycle.deletion_max_share.to_string(),
                "window": text(settings.lifecycle.deletion_window),
            },
            "loadBalancerResyncPeriod": text(settings.services.resync_period),
            "adoptLoadBalancers": settings.services.adopt,
            "deleteOrphanedLoadBalancers": settings.services.delete_orphans,
        },
    })
}

fn generic(settings: &Settings) -> Value {
    let election = settings.election.as_ref();
    json!({
        "Port": settings.serving.address.map_or(0, |address| address.port()),
        "Address": settings.serving.address.map_or_else(String::new, |address| address.ip().to_string()),
        "ClientConnection": {
            "kubeconfig": settings.kube.kubeconfig.as_ref().map_or_else(String::new, |path| path.display().to_string()),
            "contentType": "application/json",
            "qps": settings.kube.qps,
            "burst": settings.kube.burst,
        },
        "LeaderElection": {
            "leaderElect": election.is_some(),
            "leaseDuration": election.map(|election| text(election.lease_duration)),
            "renewDeadline": election.map(|election| text(election.renew_deadline)),
            "retryPeriod": election.map(|election| text(election.retry_period)),
            "resourceLock": "leases",
            "resourceName": election.map(|election| election.name.clone()),
            "resourceNamespace": election.map(|election| election.namespace.clone()),
        },
        "Controllers": settings.controllers.iter().map(|controller| controller.name()).collect::<Vec<_>>(),
        "Debugging": { "enableProfiling": false, "enableContentionProfiling": false },
        "LeaderMigrationEnabled": false,
    })
}

fn shared(settings: &Settings) -> Value {
    let cluster: Vec<String> = settings.cidrs.cluster.iter().map(ToString::to_string).collect();
    let allocator = match settings.cidrs.allocation {
        Some(Allocation::Cloud { .. }) => "CloudAllocator",
        Some(Allocation::Ranges { .. }) | None => "RangeAllocator",
    };
    json!({
        "CloudProvider": {
            "Name": settings.providers.iter().map(|provider| provider.name.as_str()).collect::<Vec<_>>().join(","),
            "CloudConfigFile": "",
        },
        "UseServiceAccountCredentials": false,
        "RouteReconciliationPeriod": text(settings.routes.resync_period),
        "NodeMonitorPeriod": text(settings.lifecycle.monitor_period),
        "ClusterName": settings.kube.cluster_name,
        "ClusterCIDR": cluster.join(","),
        "AllocateNodeCIDRs": settings.cidrs.allocation.is_some(),
        "CIDRAllocatorType": allocator,
        "ConfigureCloudRoutes": settings.routes.configure,
    })
}
