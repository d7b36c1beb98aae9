//! A Service's life: SVC-3, SVC-6, SVC-7, LBN-9, LBN-15 on a real control plane.

use anyhow::Result;
use e2e::{event, join, node_gone, nothing_was_forbidden, service, service_gone};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use test_cluster::{
    Cluster,
    nodes::{as_registered, register, set_ready},
    services::{create, has_finalizer, ingress, load_balancer},
    wait,
};

use crate::quick;

async fn with_nodes(names: &[&str]) -> Result<Cluster> {
    let cluster = quick().start().await?;
    join(&cluster, names).await?;
    Ok(cluster)
}

async fn backends(cluster: &Cluster, service: &str, wanted: &[&str]) -> Result<()> {
    wait::until(&format!("{wanted:?} behind {service}"), async || {
        Ok((cluster.cloud()?.backends_of(service).await? == wanted).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_gets_an_address_and_its_balancer_goes_with_it() -> Result<()> {
    let cluster = with_nodes(&["node-a", "node-b"]).await?;
    create(&cluster.client, load_balancer("web")).await?;

    let made = service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
    assert!(has_finalizer(&made));
    service(&cluster, "web", "the provider's annotation", |service| {
        let annotations = service.metadata.annotations.as_ref();
        annotations.is_some_and(|all| all.contains_key("status.mock.cloudprovider.ccm/load-balancer-id"))
    })
    .await?;
    backends(&cluster, "web", &["node-a", "node-b"]).await?;
    event(&cluster, "web", "EnsuredLoadBalancer").await?;

    Api::<Service>::namespaced(cluster.client.clone(), "default").delete("web", &Default::default()).await?;
    service_gone(&cluster, "web").await?;
    assert!(cluster.cloud()?.balancers().await?.is_empty(), "the finalizer went before the balancer");
    nothing_was_forbidden(&cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_changes_its_type_gives_its_balancer_back() -> Result<()> {
    let cluster = with_nodes(&["node-a"]).await?;
    create(&cluster.client, load_balancer("web")).await?;
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;

    let body = json!({ "spec": { "type": "ClusterIP" } });
    Api::<Service>::namespaced(cluster.client.clone(), "default")
        .patch("web", &PatchParams::default(), &Patch::Merge(body))
        .await?;

    service(&cluster, "web", "no finalizer and no address", |service| {
        !has_finalizer(service) && ingress(service).is_empty()
    })
    .await?;
    assert!(cluster.cloud()?.balancers().await?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backends_follow_the_nodes() -> Result<()> {
    let cluster = with_nodes(&["node-a", "node-b"]).await?;
    create(&cluster.client, load_balancer("web")).await?;
    backends(&cluster, "web", &["node-a", "node-b"]).await?;

    cluster.cloud()?.create_instance("node-c", "zone-a").await?;
    register(&cluster.client, as_registered("node-c")).await?;
    set_ready(&cluster.client, "node-c", "True").await?;
    backends(&cluster, "web", &["node-a", "node-b", "node-c"]).await?;

    cluster.cloud()?.terminate_instance("node-b").await?;
    set_ready(&cluster.client, "node-b", "Unknown").await?;
    node_gone(&cluster, "node-b").await?;
    backends(&cluster, "web", &["node-a", "node-c"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_another_class_is_left_alone() -> Result<()> {
    let cluster = with_nodes(&["node-a"]).await?;
    let mut other = load_balancer("other");
    other["spec"]["loadBalancerClass"] = json!("example.com/another");
    create(&cluster.client, other).await?;
    create(&cluster.client, load_balancer("web")).await?;
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;

    let other = service(&cluster, "other", "there", |_| true).await?;
    assert!(!has_finalizer(&other) && ingress(&other).is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_service_says_why_and_costs_nothing_else() -> Result<()> {
    let cluster = with_nodes(&["node-a"]).await?;
    let mut refused = load_balancer("refused");
    refused["metadata"]["annotations"] = json!({ "mock.cloudprovider.ccm/refuse": "no such shape" });
    create(&cluster.client, refused).await?;

    let told = event(&cluster, "refused", "SyncLoadBalancerFailed").await?;
    assert!(told.message.as_deref().unwrap_or_default().contains("no such shape"), "{told:?}");

    create(&cluster.client, load_balancer("web")).await?;
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
    Ok(())
}
