//! Several clouds in one cluster: each object belongs to one provider, and trouble in one cloud does not affect
//! another.

use anyhow::{Result, ensure};
use e2e::{event, node, node_gone, nothing_was_forbidden, service, service_gone};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use test_cluster::{
    Cloud, Cluster, Neighbour,
    nodes::{as_registered, is_uninitialized, register, set_ready},
    services::{create, ingress, load_balancer},
    wait,
};

use crate::quick;

const ANNOTATION: &str = "cloudprovider.ccm/load-balancer-provider";
/// The label by which kubelets of the second cloud are known before they have a provider ID.
const LABEL: &str = "example.com/cloud";

/// Two clouds behind one host. Services without a class belong to the first.
async fn two(flags: &[&str]) -> Result<(Cluster, Neighbour)> {
    let mut cluster = quick().start_without_host().await?;
    let other = cluster.start_neighbour("other", &[]).await?;
    cluster.add_host_flag(other.host_flag());
    for flag in ["--default-load-balancer-provider=mock"].iter().chain(flags) {
        cluster.add_host_flag(*flag);
    }
    cluster.start_host()?;
    cluster.host_ready().await?;
    Ok((cluster, other))
}

/// Creates a machine and its node, with a label that names its cloud.
async fn joins(cluster: &Cluster, cloud: &Cloud, name: &str, label: &str) -> Result<()> {
    cloud.create_instance(name, "zone-a").await?;
    let mut node = as_registered(name);
    node["metadata"]["labels"][LABEL] = json!(label);
    register(&cluster.client, node).await?;
    set_ready(&cluster.client, name, "True").await
}

async fn initialised(cluster: &Cluster, name: &str, provider: &str) -> Result<()> {
    let node = node(cluster, name, "initialised", |node| !is_uninitialized(node)).await?;
    let id = node.spec.and_then(|spec| spec.provider_id).unwrap_or_default();
    ensure!(id.starts_with(&format!("{provider}://")), "{name} is {id}");
    Ok(())
}

fn for_provider(name: &str, provider: &str) -> serde_json::Value {
    let mut service = load_balancer(name);
    service["metadata"]["annotations"][ANNOTATION] = json!(provider);
    service
}

async fn has_address(cluster: &Cluster, name: &str) -> Result<()> {
    service(cluster, name, "an address", |service| !ingress(service).is_empty()).await.map(drop)
}

async fn backends(cloud: &Cloud, service: &str, wanted: &[&str]) -> Result<()> {
    wait::until(&format!("{wanted:?} behind {service}"), async || {
        Ok((cloud.backends_of(service).await? == wanted).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_object_is_served_by_its_own_cloud() -> Result<()> {
    let (cluster, other) = two(&[]).await?;
    let (first, second) = (cluster.cloud()?, other.cloud()?);
    // Only a node's instance shows which cloud it belongs to.
    for (name, cloud) in [("a-1", &first), ("a-2", &first), ("b-1", &second)] {
        joins(&cluster, cloud, name, "unsaid").await?;
    }
    initialised(&cluster, "a-1", "mock").await?;
    initialised(&cluster, "a-2", "mock").await?;
    initialised(&cluster, "b-1", "other").await?;

    create(&cluster.client, load_balancer("plain")).await?;
    create(&cluster.client, for_provider("moves", "other")).await?;
    has_address(&cluster, "plain").await?;
    has_address(&cluster, "moves").await?;
    backends(&first, "plain", &["a-1", "a-2"]).await?;
    backends(&second, "moves", &["b-1"]).await?;

    // A typing error changes nothing except the Service's Events.
    let services = Api::<Service>::namespaced(cluster.client.clone(), "default");
    let names = |provider: &str| Patch::Merge(json!({"metadata": {"annotations": {ANNOTATION: provider}}}));
    services.patch("moves", &PatchParams::default(), &names("othre")).await?;
    let told = event(&cluster, "moves", "SyncLoadBalancerFailed").await?.message.unwrap_or_default();
    ensure!(
        told.contains("\"othre\" is not a provider of this host") && told.contains("mock, other"),
        "{told}"
    );
    backends(&second, "moves", &["b-1"]).await?;
    services.patch("moves", &PatchParams::default(), &names("mock")).await?;
    backends(&first, "moves", &["a-1", "a-2"]).await?;
    wait::until("nothing is left at the former cloud", async || {
        Ok(second.balancers().await?.is_empty().then_some(()))
    })
    .await?;

    second.terminate_instance("b-1").await?;
    set_ready(&cluster.client, "b-1", "Unknown").await?;
    node_gone(&cluster, "b-1").await?;
    nothing_was_forbidden(&cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_two_clouds_claim_is_nobodys_until_one_lets_go() -> Result<()> {
    let (cluster, other) = two(&[]).await?;
    other.cloud()?.create_instance("twin", "zone-a").await?;
    joins(&cluster, &cluster.cloud()?, "twin", "unsaid").await?;
    let told = event(&cluster, "twin", "InitializationFailed").await?.message.unwrap_or_default();
    ensure!(
        told.contains("mock and other each have an instance") && told.contains("--provider-id"),
        "{told}"
    );
    node(&cluster, "twin", "untouched", |node| {
        is_uninitialized(node) && node.spec.as_ref().is_some_and(|spec| spec.provider_id.is_none())
    })
    .await?;
    other.cloud()?.terminate_instance("twin").await?;
    initialised(&cluster, "twin", "mock").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_that_hangs_or_is_gone_holds_up_no_other() -> Result<()> {
    let (cluster, mut other) = two(&["--provider-node-selector=other=example.com/cloud=b"]).await?;
    let (first, second) = (cluster.cloud()?, other.cloud()?);
    joins(&cluster, &second, "b-0", "b").await?;
    initialised(&cluster, "b-0", "other").await?;

    second.fault("hang").await?;
    joins(&cluster, &second, "b-1", "b").await?;
    create(&cluster.client, for_provider("late", "other")).await?;
    joins(&cluster, &first, "a-1", "a").await?;
    initialised(&cluster, "a-1", "mock").await?;
    create(&cluster.client, load_balancer("web")).await?;
    has_address(&cluster, "web").await?;

    other.process().kill()?;
    joins(&cluster, &first, "a-2", "a").await?;
    initialised(&cluster, "a-2", "mock").await?;
    backends(&first, "web", &["a-1", "a-2"]).await?;
    first.terminate_instance("a-1").await?;
    set_ready(&cluster.client, "a-1", "Unknown").await?;
    node_gone(&cluster, "a-1").await?;
    // Nodes of a provider that is not asked keep what they have.
    set_ready(&cluster.client, "b-0", "Unknown").await?;
    backends(&first, "web", &["a-2"]).await?;
    initialised(&cluster, "b-0", "other").await?;
    let waits = Api::<Node>::all(cluster.client.clone()).get("b-1").await?;
    ensure!(is_uninitialized(&waits), "somebody else answered for it");
    Ok(())
}

/// Everything else stays untouched.
#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_comes_and_goes_by_its_flag() -> Result<()> {
    let mut cluster = quick().start().await?;
    let first = cluster.cloud()?;
    joins(&cluster, &first, "a-1", "a").await?;
    initialised(&cluster, "a-1", "mock").await?;
    // The next host finds the node unchanged, so it has no update of its backend left to send.
    cluster.host()?.terminate().await?;
    cluster.start_host()?;
    cluster.host_ready().await?;
    create(&cluster.client, load_balancer("web")).await?;
    has_address(&cluster, "web").await?;
    backends(&first, "web", &["a-1"]).await?;
    cluster.host()?.terminate().await?;

    first.reset_calls().await?;
    let other = cluster.start_neighbour("other", &[]).await?;
    let second = other.cloud()?;
    let flags = [other.host_flag(), "--default-load-balancer-provider=mock".to_owned()];
    let mut both = cluster.start_replica("both", &flags)?;
    joins(&cluster, &second, "b-1", "b").await?;
    create(&cluster.client, for_provider("shop", "other")).await?;
    initialised(&cluster, "b-1", "other").await?;
    has_address(&cluster, "shop").await?;
    backends(&second, "shop", &["b-1"]).await?;
    let changed: Vec<_> = (first.call_counts().await?.into_iter())
        .filter(|(method, _)| {
            ["EnsureLoadBalancer", "DeleteLoadBalancer", "BatchUpdateLoadBalancers"]
                .contains(&method.as_str())
        })
        .collect();
    ensure!(changed.is_empty(), "the newcomer changed the other's balancers: {changed:?}");
    both.terminate().await?;

    // Without the flag, its nodes and balancers belong to nobody, and stay.
    cluster.start_host()?;
    cluster.host_ready().await?;
    second.terminate_instance("b-1").await?;
    set_ready(&cluster.client, "b-1", "Unknown").await?;
    joins(&cluster, &first, "a-2", "a").await?;
    initialised(&cluster, "a-2", "mock").await?;
    wait::until("the newcomer behind web", async || {
        Ok(first.backends_of("web").await?.iter().any(|name| name == "a-2").then_some(()))
    })
    .await?;
    let services = Api::<Service>::namespaced(cluster.client.clone(), "default");
    services.delete("web", &Default::default()).await?;
    service_gone(&cluster, "web").await?;
    initialised(&cluster, "b-1", "other").await?;
    has_address(&cluster, "shop").await?;
    ensure!(second.balancers().await?.len() == 1, "a balancer of a cloud that is not served was removed");
    Ok(())
}
