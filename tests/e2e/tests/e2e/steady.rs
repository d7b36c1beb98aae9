//! The cost of a cluster in which nothing happens: reads of the cloud, one batch and one list per period, and no
//! request to the apiserver beyond the watches.

use anyhow::{Result, ensure};
use e2e::{node, service};
use test_cluster::{
    Cluster, HOST_USER,
    nodes::{as_registered, is_uninitialized, register, set_ready},
    services, wait,
};

use crate::quick;

const NODES: u64 = 30;
const SERVICES: usize = 3;
const PERIODS: u64 = 4;

fn node_name(number: u64) -> String {
    format!("node-{number:02}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steady_cluster_costs_no_write_and_one_batch_a_period() -> Result<()> {
    let mut cluster = quick()
        .host_flag("--load-balancer-resync-period=2s")
        .host_flag("--configure-cloud-routes=false")
        .start()
        .await?;
    populate(&cluster).await?;
    until_quiet(&cluster).await?;
    let before = requests(&cluster)?.len();
    cluster.cloud()?.reset_calls().await?;

    periods(&cluster).await?;

    let asked = requests(&cluster)?.split_off(before);
    ensure!(asked.is_empty(), "asked of the apiserver though nothing happened: {asked:?}");
    let (batches, items) = cluster.cloud()?.calls_and_items("BatchGetInstances").await?;
    // On a busy machine a few milliseconds may pass between the questions of one period.
    ensure!(
        batches <= 2 * items.div_ceil(NODES),
        "{items} questions about {NODES} nodes in {batches} batches: one a period is enough"
    );
    let allowed = ["BatchGetInstances", "ListLoadBalancers", "GetStatus", "WatchInstances"];
    let calls = cluster.cloud()?.call_counts().await?;
    ensure!(calls.iter().all(|(method, _)| allowed.contains(&method.as_str())), "{calls:?}");

    let status = cluster.host()?.terminate().await?;
    ensure!(status.success(), "{status}");
    let output = cluster.host()?.output();
    ensure!(
        !output.contains("WARN") && !output.contains("ERROR"),
        "a warning though all was well:\n{output}"
    );
    Ok(())
}

async fn populate(cluster: &Cluster) -> Result<()> {
    for name in (0..NODES).map(node_name) {
        cluster.cloud()?.create_instance(&name, "zone-a").await?;
        register(&cluster.client, as_registered(&name)).await?;
        set_ready(&cluster.client, &name, "True").await?;
    }
    for number in 0..SERVICES {
        services::create(&cluster.client, services::load_balancer(&format!("service-{number}"))).await?;
    }
    for name in (0..NODES).map(node_name) {
        node(cluster, &name, "initialised", |node| !is_uninitialized(node)).await?;
    }
    for number in 0..SERVICES {
        let name = format!("service-{number}");
        service(cluster, &name, "an address", |service| !services::ingress(service).is_empty()).await?;
        wait::until("all nodes stand behind it", async || {
            Ok((cluster.cloud()?.backends_of(&name).await?.len() as u64 == NODES).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// All requests except watches and renewals of the Lease, as the apiserver recorded them.
fn requests(cluster: &Cluster) -> Result<Vec<String>> {
    let events = cluster.control_plane.audit_events()?.into_iter();
    Ok(events
        .filter(|event| event.user == HOST_USER && event.verb != "watch" && event.resource != "leases")
        .map(|event| format!("{} {} {}", event.verb, event.resource, event.name))
        .collect())
}

/// Waits until some periods have passed: nodes checked, balancers listed.
async fn periods(cluster: &Cluster) -> Result<()> {
    let cloud = cluster.cloud()?;
    let (_, questions) = cloud.calls_and_items("BatchGetInstances").await?;
    let (lists, _) = cloud.calls_and_items("ListLoadBalancers").await?;
    wait::until("some periods", async || {
        let (_, now) = cloud.calls_and_items("BatchGetInstances").await?;
        let (listed, _) = cloud.calls_and_items("ListLoadBalancers").await?;
        Ok((now >= questions + PERIODS * NODES && listed >= lists + PERIODS).then_some(()))
    })
    .await
}

/// Waits until some periods have passed without a request, Events included.
async fn until_quiet(cluster: &Cluster) -> Result<()> {
    wait::until("quiet", async || {
        let before = requests(cluster)?.len();
        periods(cluster).await?;
        Ok((requests(cluster)?.len() == before).then_some(()))
    })
    .await
}
