//! Endpoints that are no providers, and providers that break the contract: a defined result, and nothing else is lost.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::Result;
use e2e::{event, node, service};
use test_cluster::{
    metrics,
    nodes::{addresses, as_registered, is_uninitialized, register},
    services::{create, ingress, load_balancer},
    wait,
};

use crate::quick;

/// `/readyz?verbose` says no, and holds this text.
async fn not_ready_because(cluster: &test_cluster::Cluster, text: &str) -> Result<()> {
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
