//! An apiserver that answers 429 or 500, is silent, or breaks every watch: the host survives and catches up.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{node, service};
use test_cluster::{
    ApiProxy, Cluster, Trouble,
    nodes::{as_registered, is_uninitialized, register, set_ready},
    services::{create, ingress, load_balancer},
    wait,
};

use crate::quick;

/// Enough requests to show that the host retries.
const REQUESTS: usize = 5;

/// Twice as long as a request may take.
const LIMIT: Duration = Duration::from_secs(90);

async fn a_cluster_behind_a_proxy() -> Result<(Cluster, ApiProxy)> {
    // A leader that cannot renew its Lease this long exits on purpose.
    let mut cluster = quick()
        .host_flag("--leader-elect")
        .host_flag("--leader-elect-lease-duration=180s")
        .host_flag("--leader-elect-renew-deadline=170s")
        .start_without_host()
        .await?;
    let proxy = ApiProxy::start(&cluster).await?;
    cluster.add_host_flag(proxy.host_flag());
    cluster.start_host()?;
    cluster.host_ready().await?;
    Ok((cluster, proxy))
}

async fn arrive(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.cloud()?.create_instance(name, "zone-a").await?;
    register(&cluster.client, as_registered(name)).await?;
    set_ready(&cluster.client, name, "True").await?;
    create(&cluster.client, load_balancer(&format!("web-{name}"))).await.map(drop)
}

async fn is_done(cluster: &Cluster, name: &str) -> Result<()> {
    node(cluster, name, "initialised", |node| !is_uninitialized(node)).await?;
    service(cluster, &format!("web-{name}"), "an address", |service| !ingress(service).is_empty()).await?;
    Ok(())
}

/// One process does all the work that arrives before, during and after.
async fn lives_through(trouble: Trouble, is_told: &str) -> Result<()> {
    let (mut cluster, proxy) = a_cluster_behind_a_proxy().await?;
    let process = cluster.host()?.id();
    arrive(&cluster, "before").await?;
    proxy.set(trouble);
    arrive(&cluster, "during").await?;
    wait::until_within(
        LIMIT,
        &format!("{REQUESTS} requests in trouble, and /readyz that tells"),
        async || {
            let (_, body) = cluster.host_get("/readyz?verbose").await?;
            Ok((proxy.met() >= REQUESTS && body.contains(is_told)).then_some(()))
        },
    )
    .await
    .with_context(|| format!("{:?}", cluster.parts()))?;
    ensure!(cluster.host_get("/livez").await?.0 == 200, "trouble elsewhere is no reason to be killed");

    proxy.set(Trouble::None);
    arrive(&cluster, "after").await?;
    for name in ["before", "during", "after"] {
        is_done(&cluster, name).await?;
    }
    cluster.host_ready().await?;
    ensure!(cluster.cloud()?.balancers().await?.len() == 3, "one balancer for each Service");
    ensure!(cluster.host()?.is_running() && cluster.host()?.id() == process, "the host ended");
    Ok(())
}

const NOT_SEEN: &str = "[-]cache-nodes failed: changes are not seen since";

#[tokio::test(flavor = "multi_thread")]
async fn an_overloaded_apiserver_is_waited_for() -> Result<()> {
    lives_through(Trouble::TooManyRequests, NOT_SEEN).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_apiserver_is_waited_for() -> Result<()> {
    lives_through(Trouble::InternalError, NOT_SEEN).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_apiserver_is_waited_for() -> Result<()> {
    lives_through(Trouble::Silence, NOT_SEEN).await
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_all_break_are_opened_again() -> Result<()> {
    lives_through(Trouble::BrokenWatches, NOT_SEEN).await
}
