//! Host and provider of different versions: the same history, the same end state.

use anyhow::Result;
use e2e::skew::Skew;
use e2e::{join, node, node_count, node_gone, service, service_gone, start_behind_a_proxy};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use test_cluster::{
    Cluster,
    nodes::{as_registered, has_taint, is_uninitialized, register, set_ready},
    services::{create, ingress, load_balancer},
    wait,
};

use crate::quick;

async fn a_node_and_a_service(cluster: &Cluster) -> Result<()> {
    join(cluster, &["node-a"]).await?;
    create(&cluster.client, load_balancer("web")).await?;
    service(cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
    wait::until("node-a behind web", async || {
        Ok((cluster.cloud()?.backends_of("web").await? == ["node-a"]).then_some(()))
    })
    .await
}

async fn its_end(cluster: &Cluster) -> Result<()> {
    Api::<Service>::namespaced(cluster.client.clone(), "default").delete("web", &Default::default()).await?;
    service_gone(cluster, "web").await?;
    set_ready(&cluster.client, "node-a", "Unknown").await?;
    cluster.cloud()?.terminate_instance("node-a").await?;
    node_gone(cluster, "node-a").await?;
    assert!(cluster.cloud()?.balancers().await?.is_empty());
    Ok(())
}

async fn a_whole_history(skew: Skew) -> Result<()> {
    let (cluster, _proxy) = start_behind_a_proxy(quick(), skew).await?;
    a_node_and_a_service(&cluster).await?;
    its_end(&cluster).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_and_a_host_of_a_later_version_are_understood() -> Result<()> {
    a_whole_history(Skew::Later).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_of_the_first_version_is_enough() -> Result<()> {
    a_whole_history(Skew::First).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_says_nothing_optional_is_enough() -> Result<()> {
    a_whole_history(Skew::Bare).await
}

/// Whatever a new enum value means: the host does not act on it, deletes nothing for it, and continues to handle known
/// values.
#[tokio::test(flavor = "multi_thread")]
async fn new_words_of_a_provider_destroy_nothing() -> Result<()> {
    let (cluster, proxy) = start_behind_a_proxy(quick(), Skew::None).await?;
    a_node_and_a_service(&cluster).await?;
    proxy.set(Skew::NewWords);
    set_ready(&cluster.client, "node-a", "Unknown").await?;
    cluster.cloud()?.create_instance("node-b", "zone-b").await?;
    register(&cluster.client, as_registered("node-b")).await?;
    cluster.cloud()?.reset_calls().await?;
    // Several rounds of queries, all answered with new values.
    wait::until("four rounds of questions", async || {
        let (calls, _) = cluster.cloud()?.calls_and_items("BatchGetInstances").await?;
        Ok((calls >= 4).then_some(()))
    })
    .await?;
    assert_eq!(node_count(&cluster).await?, 2);
    let waiting = node(&cluster, "node-b", "there", |_| true).await?;
    assert!(is_uninitialized(&waiting), "nobody knows whether its machine runs");
    let silent = node(&cluster, "node-a", "there", |_| true).await?;
    assert!(!has_taint(&silent, "node.cloudprovider.kubernetes.io/shutdown"));
    assert_eq!(cluster.cloud()?.balancers().await?.len(), 1);

    proxy.set(Skew::None);
    node(&cluster, "node-b", "initialised", |node| !is_uninitialized(node)).await?;
    its_end(&cluster).await
}
