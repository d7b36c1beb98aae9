//! Nothing happens: what a period of sweeps over all nodes and balancers costs, after a restart of the host.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use test_cluster::{Cluster, wait};

use crate::{Arguments, apiserver, usage};

const PERIODS: u64 = 5;
/// Items of a batch, where the provider says nothing else.
const BATCH: u64 = 500;
/// Sweeps over thousands of nodes on a shared machine take their time.
const PATIENCE: Duration = Duration::from_secs(600);

/// What some periods cost.
#[derive(Debug)]
pub(crate) struct Steady {
    nodes: u64,
    /// Whole sweeps over all nodes, by the questions that were asked.
    sweeps: u64,
    batches: u64,
    lists: u64,
    seconds: f64,
    calls: Vec<(String, u64)>,
    requests: apiserver::Requests,
    cpu_seconds: f64,
}

/// Restarts the host with short periods, lets it come to rest, and counts.
pub(crate) async fn measure(cluster: &mut Cluster, arguments: &Arguments) -> Result<Steady> {
    let period = &arguments.period;
    cluster
        .restart_host_with(&[
            format!("--node-status-update-frequency={period}"),
            format!("--load-balancer-resync-period={period}"),
        ])
        .await?;
    // One more has joined in the phase before.
    let nodes = arguments.nodes as u64 + 1;
    periods(cluster, nodes, 2).await?;
    let cloud = cluster.cloud()?;
    cloud.reset_calls().await?;
    let before = apiserver::requests(cluster).await?;
    let (pid, begun) = (cluster.host()?.id(), Instant::now());
    let cpu_before = usage::cpu_seconds(pid)?;
    periods(cluster, nodes, PERIODS).await?;
    let (batches, questions) = cloud.calls_and_items("BatchGetInstances").await?;
    Ok(Steady {
        nodes,
        sweeps: questions.div_ceil(nodes),
        batches,
        lists: cloud.calls_and_items("ListLoadBalancers").await?.0,
        seconds: begun.elapsed().as_secs_f64(),
        calls: cloud.call_counts().await?,
        requests: apiserver::since(&before, &apiserver::requests(cluster).await?),
        cpu_seconds: usage::cpu_seconds(pid)? - cpu_before,
    })
}

/// Waits until all nodes were asked about, and all balancers listed, so many times more.
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

impl Steady {
    /// Prints the figures.
    pub(crate) fn print(&self) {
        println!("\nnothing happens to {} nodes, {} sweeps", self.nodes, self.sweeps);
        println!("  seconds                  {:>10.1}", self.seconds);
        println!("  batches a sweep          {:>10.1}", self.batches as f64 / self.sweeps as f64);
        for (method, calls) in &self.calls {
            println!("    {method:<28} {calls:>6}");
        }
        println!("  API requests");
        for ((verb, resource), count) in &self.requests {
            println!("    {:<28} {count:>6}", format!("{verb} {resource}"));
        }
        println!("  host CPU, ms a sweep     {:>10.1}", self.cpu_seconds * 1000.0 / self.sweeps as f64);
    }

    /// Fails when a count is too high: one logical batch and one list a period, and no write.
    pub(crate) fn check(&self) -> Result<()> {
        let allowed = self.sweeps * self.nodes.div_ceil(BATCH) + 1;
        ensure!(
            self.batches <= allowed,
            "{} batches in {} sweeps, {allowed} are enough",
            self.batches,
            self.sweeps
        );
        ensure!(self.lists <= self.sweeps + 1, "{} lists of balancers in {} sweeps", self.lists, self.sweeps);
        // The apiserver itself reads and writes Services and namespaces; nodes and Events are ours alone.
        let ours = self.requests.iter().filter(|((verb, resource), _)| {
            verb != "WATCH"
                && (resource.starts_with("nodes") || resource == "events" || resource == "services/status")
        });
        let ours: Vec<_> = ours.collect();
        ensure!(ours.is_empty(), "requests although nothing happened: {ours:?}");
        Ok(())
    }
}
