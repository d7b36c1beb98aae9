//! Two replicas: one leads, and a former leader changes nothing, at the apiserver or in the cloud.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{node, service};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use test_cluster::{
    Cluster, Options, Process,
    nodes::{as_registered, is_uninitialized, register},
    services::{create, ingress, load_balancer},
    wait,
};

use crate::quick;

/// Far longer than a handover takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A handover takes seconds, but not so few that a leader on a busy machine loses its Lease.
fn electing() -> Options {
    quick()
        .host_flag("--leader-elect")
        .host_flag("--leader-elect-lease-duration=8s")
        .host_flag("--leader-elect-renew-deadline=6s")
        .host_flag("--leader-elect-retry-period=500ms")
}

async fn two() -> Result<(Cluster, Process)> {
    let cluster = electing().start().await?;
    until_led(&cluster, 0).await?;
    let standby = cluster.start_replica("standby", &[])?;
    standby.stands_by().await?;
    Ok((cluster, standby))
}

/// Waits until the Lease has changed hands this often, and somebody holds it.
async fn until_led(cluster: &Cluster, transitions: i32) -> Result<()> {
    let api = Api::<Lease>::namespaced(cluster.client.clone(), "kube-system");
    wait::until_within(LIMIT, "a leader", async || {
        let spec =
            api.get_opt("cloud-controller-manager").await?.and_then(|lease| lease.spec).unwrap_or_default();
        let held = spec.holder_identity.is_some_and(|holder| !holder.is_empty());
        Ok((held && spec.lease_transitions == Some(transitions)).then_some(()))
    })
    .await
}

async fn acts(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.cloud()?.create_instance(name, "zone-a").await?;
    register(&cluster.client, as_registered(name)).await?;
    node(cluster, name, "initialised", |node| !is_uninitialized(node)).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_replica_acts_when_the_leader_stops_or_is_killed() -> Result<()> {
    let (mut cluster, mut second) = two().await?;
    acts(&cluster, "node-a").await?;
    let status = cluster.host()?.terminate().await?;
    ensure!(status.success(), "{status} after SIGTERM");
    until_led(&cluster, 1).await?;
    acts(&cluster, "node-b").await?;

    cluster.start_host()?;
    second.kill()?;
    until_led(&cluster, 2).await?;
    acts(&cluster, "node-c").await
}

/// SIGSTOP past its Lease, then SIGCONT: it resumes with work in progress, and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_leader_is_followed_and_changes_nothing_when_it_wakes() -> Result<()> {
    let (mut cluster, _second) = two().await?;
    cluster.host()?.pause()?;
    until_led(&cluster, 1).await?;
    acts(&cluster, "node-a").await?;

    cluster.host()?.resume()?;
    let status = cluster.host()?.ended(LIMIT).await?;
    ensure!(!status.success(), "{status}, though leadership was lost");
    let printed = cluster.host()?.output();
    ensure!(printed.contains("leadership was lost"), "{printed}");
    acts(&cluster, "node-b").await
}

/// E2: nobody leads any more, so running mutations stop in the cloud.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_leaders_mutation_stops_at_the_cloud() -> Result<()> {
    let mut cluster = electing().start().await?;
    let cloud = cluster.cloud()?;
    // It outlasts the leader's Lease, but not the connection, which ends 15 s after the last word of a host that is paused.
    cloud.fault("latency,time=12s,method=EnsureLoadBalancer").await?;
    create(&cluster.client, load_balancer("web")).await?;
    wait::until("Ensure is under way", async || {
        let calls = cluster.cloud()?.call_counts().await?;
        Ok(calls.iter().any(|(method, _)| method == "EnsureLoadBalancer").then_some(()))
    })
    .await?;
    cluster.host()?.pause()?;

    wait::until_within(LIMIT, "the provider's refusal", async || {
        let calls = cluster.cloud()?.all_calls().await?;
        let refused =
            calls.iter().any(|call| call.method == "EnsureLoadBalancer" && call.reason == "STALE_LEADER");
        Ok(refused.then_some(()))
    })
    .await?;
    ensure!(cloud.balancers().await?.is_empty(), "a balancer was made for a leader that was paused");

    cloud.clear_faults().await?;
    cluster.host()?.resume()?;
    cluster.host()?.ended(LIMIT).await.context("the host that was paused")?;
    cluster.start_host()?;
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await.map(drop)
}

/// The sidecar of the leader's pod is gone for good, and another pod's answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_provider_is_gone_hands_over_to_a_replica_whose_answers() -> Result<()> {
    let mut cluster = electing().start().await?;
    until_led(&cluster, 0).await?;
    acts(&cluster, "node-a").await?;
    let beside = cluster.start_neighbour("mock", &[]).await?;
    let standby = cluster.start_replica_with(&beside, "standby", &[])?;
    standby.stands_by().await?;
    cluster.provider()?.kill()?;

    // A provider may be gone for two minutes, so that one that restarts costs no handover.
    let status = cluster.host()?.ended(LIMIT * 4).await?;
    let printed = cluster.host()?.output();
    ensure!(!status.success() && printed.contains("which leads from now on"), "{status}:\n{printed}");
    until_led(&cluster, 1).await?;
    beside.cloud()?.create_instance("node-b", "zone-a").await?;
    register(&cluster.client, as_registered("node-b")).await?;
    node(&cluster, "node-b", "initialised", |node| !is_uninitialized(node)).await?;

    // Its pod comes back, still without a provider, and leaves the other one alone.
    cluster.start_host()?;
    cluster.host()?.stands_by().await?;
    until_led(&cluster, 1).await
}
