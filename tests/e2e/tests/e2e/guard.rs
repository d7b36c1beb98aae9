//! A cloud that lies, hangs or loses its credentials costs no more than it may.

use anyhow::Result;
use e2e::{event, node, node_count};
use serde_json::json;
use test_cluster::{
    Cluster, metrics,
    nodes::{as_registered, is_uninitialized, register, set_ready},
    wait,
};

use crate::quick;

const NODES: usize = 40;

fn name(number: usize) -> String {
    format!("node-{number:02}")
}

/// Forty nodes, initialised, and then none of them ready.
async fn forty_silent_nodes(cluster: &Cluster) -> Result<()> {
    for number in 0..NODES {
        cluster.cloud()?.create_instance(&name(number), "zone-a").await?;
        register(&cluster.client, as_registered(&name(number))).await?;
    }
    for number in 0..NODES {
        node(cluster, &name(number), "initialised", |node| !is_uninitialized(node)).await?;
    }
    Ok(())
}

async fn silence_all(cluster: &Cluster) -> Result<()> {
    for number in 0..NODES {
        set_ready(&cluster.client, &name(number), "Unknown").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_denies_every_machine_costs_one_node_in_twenty() -> Result<()> {
    let cluster = quick().start().await?;
    forty_silent_nodes(&cluster).await?;
    cluster.cloud()?.fault("absent,method=BatchGetInstances").await?;
    silence_all(&cluster).await?;

    wait::until("the guard has latched", async || {
        let metrics = cluster.host_metrics().await?;
        Ok((metrics::sum(&metrics, "node_lifecycle_deletion_guard_latched", &[]) >= 1.0).then_some(()))
    })
    .await?;
    passes(&cluster, 4).await?;

    let left = node_count(&cluster).await?;
    assert!(left >= NODES - NODES / 20, "{} of {NODES} nodes were deleted", NODES - left);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_can_confirm_what_the_guard_holds_back() -> Result<()> {
    let cluster = quick().start().await?;
    forty_silent_nodes(&cluster).await?;
    cluster.cloud()?.fault("absent,method=BatchGetInstances").await?;
    silence_all(&cluster).await?;
    wait::until("the guard has latched", async || {
        let metrics = cluster.host_metrics().await?;
        Ok((metrics::sum(&metrics, "node_lifecycle_deletion_guard_latched", &[]) >= 1.0).then_some(()))
    })
    .await?;
    passes(&cluster, 2).await?;
    let held = (0..NODES).map(name).collect::<Vec<_>>();
    let api = kube::Api::<k8s_openapi::api::core::v1::Node>::all(cluster.client.clone());
    let mut survivor = None;
    for name in held {
        if let Some(node) = api.get_opt(&name).await? {
            survivor = node.metadata.uid.map(|uid| (name, uid));
        }
    }
    let (name, uid) = survivor.expect("the guard kept some");
    event(&cluster, &name, "NodeDeletionBlocked").await?;

    let body = json!({ "metadata": { "annotations": { "cloudprovider.ccm/confirm-deletion": uid } } });
    api.patch(&name, &Default::default(), &kube::api::Patch::Merge(body)).await?;

    e2e::node_gone(&cluster, &name).await
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_credentials_freeze_deletions() -> Result<()> {
    let cluster = quick().start().await?;
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    cluster.cloud()?.create_instance("node-b", "zone-a").await?;
    for name in ["node-a", "node-b"] {
        register(&cluster.client, as_registered(name)).await?;
        node(&cluster, name, "initialised", |node| !is_uninitialized(node)).await?;
    }
    cluster.cloud()?.fault("error,reason=CLOUD_CREDENTIALS_INVALID,method=BatchGetInstances").await?;
    cluster.cloud()?.terminate_instance("node-a").await?;
    set_ready(&cluster.client, "node-a", "Unknown").await?;
    passes(&cluster, 4).await?;
    node(&cluster, "node-a", "kept", |_| true).await?;

    cluster.cloud()?.clear_faults().await?;
    e2e::node_gone(&cluster, "node-a").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_hangs_costs_no_node() -> Result<()> {
    let mut cluster = quick().start().await?;
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    register(&cluster.client, as_registered("node-a")).await?;
    node(&cluster, "node-a", "initialised", |node| !is_uninitialized(node)).await?;

    cluster.provider()?.pause()?;
    set_ready(&cluster.client, "node-a", "Unknown").await?;
    assert_eq!(cluster.host_get("/livez").await?.0, 200);
    cluster.provider()?.resume()?;

    // It answers again: the machine runs, the node stays.
    passes(&cluster, 3).await?;
    node(&cluster, "node-a", "kept", |_| true).await?;
    Ok(())
}

/// Waits until the provider was asked for so many more batches, or the host has counted as many failures: so many passes.
async fn passes(cluster: &Cluster, count: usize) -> Result<()> {
    let asked = async || {
        let metrics = cluster.host_metrics().await?;
        anyhow::Ok(metrics::sum(
            &metrics,
            "cloudprovider_rpc_duration_seconds_count",
            &["method=\"BatchGetInstances\""],
        ))
    };
    let before = asked().await?;
    wait::until(&format!("{count} more passes"), async || {
        Ok((asked().await? >= before + count as f64).then_some(()))
    })
    .await
}
