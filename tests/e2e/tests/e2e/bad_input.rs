//! Endpoints that are not providers, providers that break the contract, and Services of every kind: the result is
//! defined, and nothing else is lost.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Context as _, Result};
use e2e::{event, node, service, service_gone};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use provider_mock::cloud::{Balancer, Protocol};
use serde_json::{Value, json};
use test_cluster::{
    Cluster, metrics,
    nodes::{addresses, as_registered, is_uninitialized, register},
    services::{create, has_finalizer, ingress, load_balancer},
    wait,
};

use crate::quick;

/// `/readyz?verbose` fails, and contains this text.
async fn not_ready_because(cluster: &Cluster, text: &str) -> Result<()> {
    wait::until(&format!("/readyz that says {text:?}"), async || {
        match cluster.host_get("/readyz?verbose").await {
            Ok((500, body)) if body.contains(text) => Ok(Some(())),
            _ => Ok(None),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_is_no_socket_is_named() -> Result<()> {
    let mut cluster = quick().start_control_plane().await?;
    fs::write(cluster.socket(), "a plain file")?;
    cluster.start_host()?;
    not_ready_because(&cluster, "not a socket").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_anybody_may_write_to_is_refused() -> Result<()> {
    let mut cluster = quick().start_without_host().await?;
    fs::set_permissions(cluster.socket(), fs::Permissions::from_mode(0o666))?;
    cluster.start_host()?;
    not_ready_because(&cluster, "666").await?;

    fs::set_permissions(cluster.socket(), fs::Permissions::from_mode(0o660))?;
    cluster.host_ready().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_answer_that_breaks_the_rules_is_counted_and_survived() -> Result<()> {
    let cluster = quick().start().await?;
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    cluster.cloud()?.fault("breach,rule=batch-keys,method=BatchGetInstances,times=1").await?;
    register(&cluster.client, as_registered("node-a")).await?;

    node(&cluster, "node-a", "initialised by the retry", |node| !is_uninitialized(node)).await?;
    let text = cluster.host_metrics().await?;
    let counted = metrics::sum(&text, "cloudprovider_contract_violations_total", &["rule=\"batch-keys\""]);
    assert!(counted >= 1.0, "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_address_is_dropped_and_told() -> Result<()> {
    let cluster = quick().start().await?;
    cluster.cloud()?.create_instance("node-a", "zone-a").await?;
    cluster.cloud()?.fault("breach,rule=address-valid,method=BatchGetInstances").await?;
    register(&cluster.client, as_registered("node-a")).await?;

    let node = node(&cluster, "node-a", "initialised", |node| !is_uninitialized(node)).await?;
    assert!(addresses(&node, "InternalIP").iter().all(|address| address.parse::<std::net::IpAddr>().is_ok()));
    event(&cluster, "node-a", "InvalidInstanceMetadata").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_lost_makes_no_second_balancer() -> Result<()> {
    let cluster = quick().start().await?;
    cluster.cloud()?.fault("lost-answer,method=EnsureLoadBalancer,times=1").await?;
    create(&cluster.client, load_balancer("web")).await?;

    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
    assert_eq!(cluster.cloud()?.balancers().await?.len(), 1);
    Ok(())
}

async fn patch(cluster: &Cluster, name: &str, body: Value) -> Result<()> {
    let api = Api::<Service>::namespaced(cluster.client.clone(), "default");
    api.patch(name, &PatchParams::default(), &Patch::Merge(body)).await?;
    Ok(())
}

async fn only_balancer(cluster: &Cluster) -> Result<Balancer> {
    let balancers = cluster.cloud()?.balancers().await?;
    anyhow::ensure!(balancers.len() == 1, "{balancers:?}");
    balancers.into_iter().next().context("one")
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_of_every_kind_reach_the_cloud_in_their_order() -> Result<()> {
    let cluster = quick().start().await?;
    let mut dns = load_balancer("dns");
    dns["spec"]["allocateLoadBalancerNodePorts"] = json!(false);
    dns["spec"]["ports"] = json!([
        { "name": "udp", "protocol": "UDP", "port": 53, "targetPort": 5353 },
        { "name": "tcp", "protocol": "TCP", "port": 53, "targetPort": "dns" },
        { "name": "https", "port": 443, "appProtocol": "kubernetes.io/h2c" },
    ]);
    create(&cluster.client, dns).await?;

    service(&cluster, "dns", "an address", |service| !ingress(service).is_empty()).await?;
    let ports = only_balancer(&cluster).await?.ports;
    let told: Vec<_> = ports.iter().map(|port| (port.name.as_str(), port.protocol, port.port)).collect();
    assert_eq!(told, [("udp", Protocol::Udp, 53), ("tcp", Protocol::Tcp, 53), ("https", Protocol::Tcp, 443)]);
    assert!(ports.iter().all(|port| port.node_port == 0), "none was allotted: {ports:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_protocol_that_the_cloud_lacks_is_told_and_waits_for_a_change() -> Result<()> {
    let cluster = quick().start().await?;
    let mut sigtran = load_balancer("sigtran");
    sigtran["spec"]["ports"] = json!([{ "name": "m3ua", "protocol": "SCTP", "port": 2905 }]);
    create(&cluster.client, sigtran).await?;

    let told = event(&cluster, "sigtran", "SyncLoadBalancerFailed").await?;
    assert!(told.message.as_deref().unwrap_or_default().contains("protocol"), "{told:?}");
    assert!(cluster.cloud()?.balancers().await?.is_empty());
    let ports = json!([{ "name": "m3ua", "protocol": "TCP", "port": 2905 }]);
    patch(&cluster, "sigtran", json!({ "spec": { "ports": ports } })).await?;
    service(&cluster, "sigtran", "an address", |service| !ingress(service).is_empty()).await?;
    Ok(())
}

/// As much as the apiserver accepts.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_annotations_and_a_huge_one_change_nothing() -> Result<()> {
    let cluster = quick().start().await?;
    let mut web = load_balancer("web");
    let mut annotations: BTreeMap<String, String> =
        (0..1_000).map(|number| (format!("example.com/a{number}"), "x".repeat(20))).collect();
    annotations.insert("mock.cloudprovider.ccm/note".to_owned(), "y".repeat(200_000));
    web["metadata"]["annotations"] = json!(annotations);
    create(&cluster.client, web).await?;

    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
    let told = only_balancer(&cluster).await?.annotations;
    let sizes: Vec<_> = told.iter().map(|(key, value)| (key.as_str(), value.len())).collect();
    assert_eq!(sizes, [("mock.cloudprovider.ccm/note", 200_000)], "only what the provider wants");
    let kept = service(&cluster, "web", "there", |_| true).await?.metadata.annotations.unwrap_or_default();
    assert!(
        annotations.iter().all(|(key, value)| kept.get(key) == Some(value)),
        "nothing of the user's is lost"
    );
    Ok(())
}

/// SW-5, STAT-4: another controller's finalizer stays, and the status shows no balancer.
#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_of_another_controller_outlives_the_balancer() -> Result<()> {
    let cluster = quick().start().await?;
    let mut web = load_balancer("web");
    web["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&cluster.client, web).await?;
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;

    Api::<Service>::namespaced(cluster.client.clone(), "default").delete("web", &Default::default()).await?;
    let held = service(&cluster, "web", "without our finalizer", |service| !has_finalizer(service)).await?;
    assert_eq!(held.metadata.finalizers.as_deref(), Some(&["example.com/hold".to_owned()][..]));
    assert!(ingress(&held).is_empty(), "{held:?}");
    assert!(cluster.cloud()?.balancers().await?.is_empty());
    patch(&cluster, "web", json!({ "metadata": { "finalizers": null } })).await?;
    service_gone(&cluster, "web").await
}

/// SW-3: through ClusterIP, which is the only way, and quickly.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_goes_to_another_class_gives_its_balancer_back() -> Result<()> {
    let mut cluster = quick().start().await?;
    create(&cluster.client, load_balancer("web")).await?;
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
    let there_and_back = async |class: &str| {
        patch(&cluster, "web", json!({ "spec": { "type": "ClusterIP" } })).await?;
        let spec = json!({ "type": "LoadBalancer", "loadBalancerClass": class });
        patch(&cluster, "web", json!({ "spec": spec })).await
    };
    there_and_back("example.com/another").await?;
    service(&cluster, "web", "no finalizer, no address", |one| {
        !has_finalizer(one) && ingress(one).is_empty()
    })
    .await?;
    assert!(cluster.cloud()?.balancers().await?.is_empty());

    there_and_back("mock").await?;
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
    cluster.host()?.kill()?;
    patch(&cluster, "web", json!({ "spec": { "type": "ClusterIP", "loadBalancerClass": null } })).await?;
    let spec = json!({ "type": "LoadBalancer", "loadBalancerClass": "example.com/another" });
    patch(&cluster, "web", json!({ "spec": spec })).await?;
    cluster.start_host()?;
    service(&cluster, "web", "no finalizer", |service| !has_finalizer(service)).await?;
    assert!(cluster.cloud()?.balancers().await?.is_empty());
    Ok(())
}
