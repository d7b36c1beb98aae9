//! Routes to pod CIDRs: ROUTE-7, ROUTE-11, ROUTE-15, COND-1, WATCH-2 on a real control plane.

use anyhow::{Result, ensure};
use e2e::{join, node, node_gone, nothing_was_forbidden, quick};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use provider_mock::cloud::{NewRoute, Target};
use serde_json::json;
use test_cluster::{Cluster, wait};

async fn with_nodes(period: &str, names: &[&str]) -> Result<Cluster> {
    let cluster = quick()
        .host_flag("--cluster-cidr=10.244.0.0/16,fd00:10::/48")
        .host_flag(format!("--route-reconciliation-period={period}"))
        // Only routes are queried here once the nodes exist.
        .host_flag("--node-status-update-frequency=1h")
        .start()
        .await?;
    join(&cluster, names).await?;
    Ok(cluster)
}

/// Writes pod CIDRs as their allocator does.
async fn give(cluster: &Cluster, name: &str, cidrs: &[&str]) -> Result<()> {
    let body = json!({"spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs}});
    Api::<Node>::all(cluster.client.clone())
        .patch(name, &PatchParams::default(), &Patch::Merge(body))
        .await?;
    Ok(())
}

/// Destination and node of each route in the cloud.
async fn routes(cluster: &Cluster) -> Result<Vec<String>> {
    let listed = cluster.cloud()?.door().routes().await?;
    let node =
        |target: &Option<Target>| target.as_ref().map(|target| target.node.clone()).unwrap_or_default();
    let mut words: Vec<String> = listed
        .iter()
        .map(|one| format!("{} {}", one.route.destination_cidr, node(&one.route.target)))
        .collect();
    words.sort();
    Ok(words)
}

async fn until_routes(cluster: &Cluster, wanted: &[&str]) -> Result<()> {
    let mut seen = Vec::new();
    let waited = wait::until(&format!("the routes {wanted:?}"), async || {
        seen = routes(cluster).await?;
        Ok((seen == wanted).then_some(()))
    })
    .await;
    waited.map_err(|error| error.context(format!("the routes are {seen:?}\n{:?}", cluster.parts())))
}

async fn until_available(cluster: &Cluster, name: &str) -> Result<()> {
    node(cluster, name, "its network available", |node| {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| {
            condition.type_ == "NetworkUnavailable"
                && condition.status == "False"
                && condition.reason.as_deref() == Some("RouteCreated")
        })
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_come_and_go_with_their_nodes() -> Result<()> {
    let cluster = with_nodes("1h", &["node-a", "node-b"]).await?;
    give(&cluster, "node-a", &["10.244.0.0/24", "fd00:10:0:1::/64"]).await?;
    give(&cluster, "node-b", &["10.244.1.0/24"]).await?;
    until_routes(&cluster, &["10.244.0.0/24 node-a", "10.244.1.0/24 node-b", "fd00:10:0:1::/64 node-a"])
        .await?;
    until_available(&cluster, "node-a").await?;
    until_available(&cluster, "node-b").await?;

    Api::<Node>::all(cluster.client.clone()).delete("node-a", &DeleteParams::default()).await?;
    node_gone(&cluster, "node-a").await?;
    until_routes(&cluster, &["10.244.1.0/24 node-b"]).await?;
    nothing_was_forbidden(&cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_behind_our_back_comes_back_at_the_sweep() -> Result<()> {
    let mut cluster = with_nodes("1s", &["node-a"]).await?;
    give(&cluster, "node-a", &["10.244.0.0/24"]).await?;
    until_routes(&cluster, &["10.244.0.0/24 node-a"]).await?;
    until_available(&cluster, "node-a").await?;
    cluster.cloud()?.door().delete_route("10.244.0.0/24").await?;
    until_routes(&cluster, &["10.244.0.0/24 node-a"]).await?;

    let uid = Api::<Namespace>::all(cluster.client.clone()).get("kube-system").await?.metadata.uid;
    let stray = |destination_cidr: &str, target: Option<Target>| NewRoute {
        cluster_uid: uid.clone().unwrap_or_default(),
        destination_cidr: destination_cidr.to_owned(),
        target,
    };
    let gone = Target { node: "node-x".to_owned(), provider_id: String::new() };
    let door = cluster.cloud()?.door().clone();
    for route in [
        stray("10.244.9.0/24", None),
        stray("10.244.8.0/24", Some(gone.clone())),
        stray("10.9.0.0/24", Some(gone)),
        // A former controller's route.
        NewRoute { cluster_uid: String::new(), ..stray("10.244.7.0/24", None) },
    ] {
        door.create_route(&route).await?;
    }
    until_routes(&cluster, &["10.244.0.0/24 node-a", "10.244.7.0/24 ", "10.9.0.0/24 node-x"]).await?;

    // A restart finds nothing to do.
    cluster.cloud()?.reset_calls().await?;
    cluster.host()?.terminate().await?;
    cluster.start_host()?;
    cluster.host_ready().await?;
    wait::until("a list by the new process", async || {
        let (calls, _) = cluster.cloud()?.calls_and_items("ListRoutes").await?;
        Ok((calls > 1).then_some(()))
    })
    .await?;
    let counts = cluster.cloud()?.call_counts().await?;
    ensure!(
        counts
            .iter()
            .all(|(method, _)| !["BatchEnsureRoutes", "BatchDeleteRoutes"].contains(&method.as_str())),
        "{counts:?}"
    );
    nothing_was_forbidden(&cluster)
}
