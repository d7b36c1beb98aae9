//! Pod CIDRs of nodes: IPAM-4, IPAM-10, IPAM-12, IPAM-13 on a real control plane, where a podCIDR is immutable.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use e2e::{event, node, nothing_was_forbidden};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::DeleteParams};
use serde_json::json;
use test_cluster::{
    Options, metrics,
    nodes::{as_registered, register},
};

use crate::quick;

fn dividing(cluster_cidr: &str) -> Options {
    quick()
        .host_flag("--controllers=*,nodeipam")
        .host_flag("--allocate-node-cidrs")
        .host_flag(format!("--cluster-cidr={cluster_cidr}"))
}

fn pod_cidrs(node: &Node) -> Vec<String> {
    node.spec.as_ref().and_then(|spec| spec.pod_cidrs.clone()).unwrap_or_default()
}

/// Registers nodes, and waits until each has its CIDRs.
async fn join(cluster: &test_cluster::Cluster, names: &[&str]) -> Result<Vec<Vec<String>>> {
    for name in names {
        register(&cluster.client, as_registered(name)).await?;
    }
    let mut given = Vec::new();
    for name in names {
        given.push(pod_cidrs(&node(cluster, name, "pod CIDRs", |node| !pod_cidrs(node).is_empty()).await?));
    }
    Ok(given)
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_have_pod_cidrs_of_their_own_whatever_becomes_of_the_host() -> Result<()> {
    let mut cluster = dividing("10.20.0.0/20,fd00:20::/56")
        .host_flag("--service-cluster-ip-range=10.20.0.0/24")
        .start()
        .await?;
    let mut given = join(&cluster, &["a", "b", "c", "d"]).await?;
    cluster.host()?.kill()?;
    register(&cluster.client, as_registered("e")).await?;
    cluster.start_host()?;
    cluster.host_ready().await?;
    given.extend(join(&cluster, &["f", "g"]).await?);
    given.push(pod_cidrs(&node(&cluster, "e", "pod CIDRs", |node| !pod_cidrs(node).is_empty()).await?));

    for cidrs in &given {
        let [v4, v6] = &cidrs[..] else { anyhow::bail!("not one of each family: {cidrs:?}") };
        assert!(v4.starts_with("10.20.") && v4.ends_with(".0/24"), "{v4}");
        assert!(v6.starts_with("fd00:20:") && v6.ends_with("/64"), "{v6}");
        assert_ne!(v4, "10.20.0.0/24", "it belongs to Services");
    }
    let all: BTreeSet<_> = given.iter().flatten().collect();
    assert_eq!(all.len(), 14, "one was given twice: {given:?}");
    for (name, cidrs) in ["a", "b", "c", "d"].iter().zip(&given) {
        let now = node(&cluster, name, "as before", |_| true).await?;
        assert_eq!(pod_cidrs(&now), *cidrs);
        let first = now.spec.and_then(|spec| spec.pod_cidr).context("spec.podCIDR")?;
        assert_eq!(first, cidrs[0]);
    }
    nothing_was_forbidden(&cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_block_is_told_and_gets_the_next_that_is_free() -> Result<()> {
    let cluster = dividing("10.20.0.0/24").host_flag("--node-cidr-mask-size=25").start().await?;
    let given = [join(&cluster, &["a"]).await?, join(&cluster, &["b"]).await?].concat();
    assert_eq!(given, [["10.20.0.0/25"], ["10.20.0.128/25"]]);
    register(&cluster.client, as_registered("c")).await?;
    let told = event(&cluster, "c", "CIDRNotAvailable").await?;
    assert_eq!(told.type_.as_deref(), Some("Warning"));
    let text = cluster.host_metrics().await?;
    assert_eq!(metrics::sum(&text, "node_ipam_controller_cidrset_usage_cidrs", &[]), 1.0);
    assert_eq!(metrics::sum(&text, "ccm_reports", &["\"node-ipam-controller\"", "\"Exhausted\""]), 1.0);

    Api::<Node>::all(cluster.client.clone()).delete("a", &DeleteParams::default()).await?;

    node(&cluster, "c", "the block of a", |node| pod_cidrs(node) == given[0]).await?;
    nothing_was_forbidden(&cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_pod_cidr_is_told_and_everybody_else_is_served() -> Result<()> {
    let mut cluster = dividing("10.20.0.0/16").start_without_host().await?;
    for (name, cidr) in
        [("stray", "192.168.7.0/24"), ("other-family", "fd00::/64"), ("twin-a", "10.20.0.0/24")]
    {
        let mut wrong = as_registered(name);
        wrong["spec"]["podCIDRs"] = json!([cidr]);
        register(&cluster.client, wrong).await?;
    }
    let mut twin = as_registered("twin-b");
    twin["spec"]["podCIDRs"] = json!(["10.20.0.0/24"]);
    register(&cluster.client, twin).await?;
    cluster.start_host()?;
    cluster.host_ready().await?;

    assert_eq!(join(&cluster, &["good"]).await?, [["10.20.1.0/24"]]);
    for (name, reason) in [
        ("stray", "InvalidPodCIDR"),
        ("other-family", "InvalidPodCIDR"),
        ("twin-a", "PodCIDRConflict"),
        ("twin-b", "PodCIDRConflict"),
    ] {
        let told = event(&cluster, name, reason).await?;
        assert_eq!(told.type_.as_deref(), Some("Warning"), "{name}");
    }
    assert!(cluster.host()?.is_running());
    nothing_was_forbidden(&cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_cidrs_that_the_cloud_allots_reach_their_nodes() -> Result<()> {
    let cluster = quick()
        .host_flag("--controllers=*,nodeipam")
        .host_flag("--allocate-node-cidrs")
        .host_flag("--cidr-allocator-type=CloudAllocator")
        .start()
        .await?;
    for name in ["a", "b"] {
        cluster.cloud()?.create_instance(name, "zone-a").await?;
    }
    let given = join(&cluster, &["a", "b"]).await?;
    for (name, cidrs) in ["a", "b"].iter().zip(given) {
        assert_eq!(cidrs, cluster.cloud()?.door().instance(name).await?.pod_cidrs);
    }
    register(&cluster.client, as_registered("late")).await?;
    event(&cluster, "late", "CIDRNotAvailable").await?;

    cluster.cloud()?.create_instance("late", "zone-a").await?;

    node(&cluster, "late", "pod CIDRs", |node| !pod_cidrs(node).is_empty()).await?;
    nothing_was_forbidden(&cluster)
}
