//! The first start of a host in a cluster full of nodes that wait.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::ListParams};
use test_cluster::{Cluster, metrics, nodes, wait};

use crate::{
    apiserver::{self, Requests},
    usage,
};

/// Provider calls that 2,000 nodes may cost.
const MAX_CALLS: u64 = 20;
const LIMIT: Duration = Duration::from_secs(600);
const INITIALISED: &str = "node_controller_initial_node_sync_delay_seconds_count";

/// What the initialisation cost.
#[derive(Debug)]
pub(crate) struct Init {
    seconds: f64,
    /// Nodes a second from the first one on: without the start of the process and the first list.
    flow: f64,
    calls: Vec<(String, u64)>,
    requests: Requests,
    cpu_seconds: f64,
    peak_mib: f64,
}

/// Starts the host and waits until all nodes are initialised.
pub(crate) async fn measure(cluster: &mut Cluster, count: usize) -> Result<Init> {
    let before = apiserver::requests(cluster).await?;
    cluster.cloud()?.reset_calls().await?;
    let begun = Instant::now();
    cluster.start_host()?;
    // The host's own counter is read, so that the apiserver has nothing else to do.
    let mut first = None;
    wait::until_within(LIMIT, "all nodes initialised", async || {
        let metrics = cluster.host_metrics().await.unwrap_or_default();
        let done = metrics::sum(&metrics, INITIALISED, &[]);
        if done > 0.0 {
            first.get_or_insert((begun.elapsed().as_secs_f64(), done));
        }
        Ok((done as usize >= count).then_some(()))
    })
    .await
    .with_context(|| format!("{:?}", cluster.parts()))?;
    let seconds = begun.elapsed().as_secs_f64();
    let flow = first.map_or(0.0, |(since, before)| (count as f64 - before) / (seconds - since));
    let requests = apiserver::since(&before, &apiserver::requests(cluster).await?);
    let calls = cluster.cloud()?.call_counts().await?;
    all_are_initialised(cluster, count).await?;
    let pid = cluster.host()?.id();
    Ok(Init {
        seconds,
        flow,
        calls,
        requests,
        cpu_seconds: usage::cpu_seconds(pid)?,
        peak_mib: usage::peak_mib(pid)?,
    })
}

async fn all_are_initialised(cluster: &Cluster, count: usize) -> Result<()> {
    let list = Api::<Node>::all(cluster.client.clone()).list(&ListParams::default()).await?.items;
    let done = list.iter().filter(|node| {
        !nodes::is_uninitialized(node)
            && !nodes::addresses(node, "InternalIP").is_empty()
            && node.spec.as_ref().is_some_and(|spec| spec.provider_id.is_some())
    });
    let done = done.count();
    ensure!(done == count, "the host counts {count} initialised nodes, the apiserver has {done}");
    Ok(())
}

impl Init {
    /// Prints the figures.
    pub(crate) fn print(&self, count: usize, raw: f64) {
        let rate = count as f64 / self.seconds;
        println!("\ninitialisation of {count} nodes, from the start of the process");
        println!("  seconds                  {:>10.1}", self.seconds);
        println!("  rate                     {rate:>10.0} nodes/s");
        println!("  share of half the raw rate {:>8.2}", rate / (raw / 2.0));
        println!("  the same, from the first node on {:>2.2}", self.flow / (raw / 2.0));
        println!("  provider calls           {:>10}", self.instance_calls());
        for (method, calls) in &self.calls {
            println!("    {method:<28} {calls:>6}");
        }
        println!("  API requests");
        for ((verb, resource), count) in &self.requests {
            println!("    {:<28} {count:>6}", format!("{verb} {resource}"));
        }
        println!("  host CPU seconds         {:>10.2}", self.cpu_seconds);
        println!("  host peak memory, MiB    {:>10.1}", self.peak_mib);
    }

    /// Fails when a count is too high.
    pub(crate) fn check(&self, count: usize) -> Result<()> {
        let calls = self.instance_calls();
        ensure!(calls <= MAX_CALLS, "{calls} provider calls for the initialisation, {MAX_CALLS} are allowed");
        // A write that meets a conflict is decided anew, after a look at the node: rare, so a few are let pass.
        let repeats = 2 + count as u64 / 50;
        for resource in ["nodes", "nodes/status"] {
            let patches =
                self.requests.get(&("PATCH".to_owned(), resource.to_owned())).copied().unwrap_or_default();
            ensure!(
                (count as u64..=count as u64 + repeats).contains(&patches),
                "{patches} PATCHes of {resource} for {count} nodes: one each is needed"
            );
        }
        let gets = self.requests.get(&("GET".to_owned(), "nodes".to_owned())).copied().unwrap_or_default();
        ensure!(gets <= repeats, "{gets} GETs of nodes: none is needed but after a conflict");
        Ok(())
    }

    fn instance_calls(&self) -> u64 {
        self.calls.iter().filter(|(method, _)| method.ends_with("Instances")).map(|(_, calls)| calls).sum()
    }
}
