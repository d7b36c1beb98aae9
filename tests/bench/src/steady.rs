//! Nothing happens: the cost of a period of sweeps over all nodes and balancers, after a restart of the host.

use std::time::{Duration, Instant};

use anyhow::Result;
use test_cluster::{Cluster, wait};

use crate::{Arguments, apiserver, report::Phase, subject::Subject, usage::Usage};

const PERIODS: u64 = 5;
/// The default maximum number of items in a batch.
const BATCH: u64 = 500;
/// Sweeps over thousands of nodes take a while on a shared machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// Restarts the host with short periods, lets it settle, and counts.
pub(crate) async fn measure(subject: &mut Subject, arguments: &Arguments) -> Result<Phase> {
    let period = &arguments.period;
    let cluster = &mut subject.cluster;
    cluster
        .restart_host_with(&[
            format!("--node-status-update-frequency={period}"),
            format!("--load-balancer-resync-period={period}"),
        ])
        .await?;
    let nodes = arguments.nodes as u64;
    periods(cluster, nodes, 2).await?;
    let cloud = cluster.cloud()?;
    cloud.reset_calls().await?;
    let before = apiserver::requests(cluster).await?;
    let (pids, begun) = ([cluster.host()?.id()], Instant::now());
    let used = Usage::of(&pids)?;
    periods(cluster, nodes, PERIODS).await?;
    let (batches, questions) = cloud.calls_and_items("BatchGetInstances").await?;
    let (lists, _) = cloud.calls_and_items("ListLoadBalancers").await?;
    // Whole sweeps over all nodes, by the number of queries.
    let sweeps = questions.div_ceil(nodes);
    let requests = apiserver::since(&before, &apiserver::requests(cluster).await?);

    let mut phase = Phase::new(format!("nothing happens to {nodes} nodes, {PERIODS} sweeps"));
    phase.value("seconds", begun.elapsed().as_secs_f64(), 1);
    phase.count("sweeps", sweeps);
    phase.gate("batches of questions", batches, 0..=sweeps * nodes.div_ceil(BATCH) + 1);
    phase.gate("lists of balancers", lists, 0..=sweeps + 1);
    let calls = cloud.call_counts().await?;
    phase.counts(calls.iter().map(|(method, calls)| (method.as_str(), *calls)));
    for ((verb, resource), count) in &requests {
        // The apiserver itself reads and writes Services and namespaces; only we read and write nodes and Events.
        let ours = verb != "WATCH"
            && (resource.starts_with("nodes") || resource == "events" || resource == "services/status");
        let name = format!("{verb} {resource}");
        if ours { phase.gate(name, *count, 0..=0) } else { phase.count(name, *count) }
    }
    let used = Usage::of(&pids)?.cpu_since(used);
    phase.value("host CPU, ms a sweep", used * 1000.0 / sweeps as f64, 1);
    Ok(phase)
}

/// Waits until all nodes have been queried, and all balancers listed, this many more times.
async fn periods(cluster: &Cluster, nodes: u64, count: u64) -> Result<()> {
    let cloud = cluster.cloud()?;
    let (_, questions) = cloud.calls_and_items("BatchGetInstances").await?;
    let (lists, _) = cloud.calls_and_items("ListLoadBalancers").await?;
    wait::until_within(PATIENCE, "some periods", async || {
        let (_, now) = cloud.calls_and_items("BatchGetInstances").await?;
        let (listed, _) = cloud.calls_and_items("ListLoadBalancers").await?;
        Ok((now >= questions + count * nodes && listed >= lists + count).then_some(()))
    })
    .await
}
