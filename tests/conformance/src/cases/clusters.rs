//! Clusters that the cloud hosts.

use cloudprovider_proto::v1alpha1::{ErrorReason, GetControlPlaneEndpointRequest};

use crate::{
    case::{Case, Outcome, Profile::Clusters},
    trial::{List, Trial, expect, good, refused},
};

const HOSTED: &[&str] = &["create-cluster", "delete-cluster"];

pub(super) const CASES: &[Case] = &[
    Case::new("CLUS-01", Clusters, "a hosted cluster is listed", &["page-walk-ends"], &listed)
        .words(&["ListClusters lists the clusters of the account page by page."])
        .hooks(HOSTED),
    Case::new("CLUS-02", Clusters, "its control plane has an address", &[], &endpoint)
        .words(&["GetControlPlaneEndpoint returns the address of a cluster's apiserver."])
        .hooks(HOSTED),
    Case::new("CLUS-03", Clusters, "a cluster that nobody knows is CLUSTER_NOT_FOUND", &[], &unknown)
        .words(&["| the cluster does not exist | NOT_FOUND | CLUSTER_NOT_FOUND"]),
];

fn request(t: &Trial, name: &str) -> GetControlPlaneEndpointRequest {
    GetControlPlaneEndpointRequest { cluster: t.cluster(), cluster_name: name.to_owned() }
}

async fn listed(t: &Trial) -> Outcome {
    let name = t.name();
    t.hosted_cluster(&name).await?;
    t.eventually("the cluster in the list", async || {
        let all = List::Clusters.walk(t, 0).await?.keys;
        Ok(if all.contains(&name) { Ok(()) } else { Err(format!("{all:?}")) })
    })
    .await
}

async fn endpoint(t: &Trial) -> Outcome {
    let name = t.name();
    let host = t.hosted_cluster(&name).await?;
    let answer = t.clusters().get_control_plane_endpoint(t.ask(request(t, &name))).await;
    let seen = good("GetControlPlaneEndpoint", answer)?;
    let fits =
        !seen.host.is_empty() && (host.is_empty() || seen.host == host) && (0..=65_535).contains(&seen.port);
    expect(fits, format!("host {host:?} and a port"), seen)
}

async fn unknown(t: &Trial) -> Outcome {
    let answer = t.clusters().get_control_plane_endpoint(t.ask(request(t, &t.name()))).await;
    refused("GetControlPlaneEndpoint", answer, ErrorReason::ClusterNotFound).map(drop)
}
