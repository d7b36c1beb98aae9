//! Routes to the pod CIDRs of all nodes: created at the first start, and left alone at the next.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use test_cluster::{Cluster, metrics, wait};

use crate::{realistic, report::Phase, subject::Subject};

/// Has a pod CIDR for each of 65,536 nodes.
const CLUSTER_CIDR: &str = "10.0.0.0/8";
/// The limit of provider calls for 2,000 new routes, lists included.
const MAX_CALLS: u64 = 20;
const LIMIT: Duration = Duration::from_secs(300);
const IN_FLIGHT: usize = 32;
/// A series of the host's metrics, and some of its labels.
type Series = (&'static str, &'static [&'static str]);
const MADE: Series =
    ("ccm_route_operation_duration_seconds_count", &["operation=\"ensure\"", "result=\"ok\""]);
const LISTED: Series =
    ("ccm_route_operation_duration_seconds_count", &["operation=\"list\"", "result=\"ok\""]);
/// How long nothing must be called after the first list.
const QUIET: Duration = Duration::from_secs(2);

/// Gives pod CIDRs to all nodes while no host runs, starts the host, and starts it once more.
pub(crate) async fn measure(subject: &mut Subject, count: usize) -> Result<Phase> {
    let cluster = &mut subject.cluster;
    cluster.host()?.terminate().await?;
    cluster.add_host_flag(format!("--cluster-cidr={CLUSTER_CIDR}"));
    give_pod_cidrs(cluster, count).await?;
    let begun = Instant::now();
    let made = start_until(cluster, MADE, count).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let there = cluster.cloud()?.door().routes().await?.len();
    ensure!(there == count, "{there} routes for {count} nodes");
    cluster.host()?.terminate().await?;
    start_until(cluster, LISTED, 1).await?;
    // A node whose routes are right is not even looked at.
    tokio::time::sleep(QUIET).await;
    let restarted = route_calls(cluster).await?;

    let mut phase =
        Phase::new(format!("routes to the pod CIDRs of {count} nodes, from the start of the process"));
    phase.value("seconds", seconds, 1);
    let most = MAX_CALLS * (count as u64).div_ceil(2000);
    phase.gate("provider calls", made.iter().map(|(_, calls)| calls).sum(), 0..=most);
    phase.counts(made.iter().map(|(method, calls)| (method.as_str(), *calls)));
    let changes = restarted.iter().filter(|(method, _)| method != "ListRoutes").map(|(_, calls)| calls).sum();
    phase.gate("changes after a restart, though nothing had changed", changes, 0..=0);
    phase.counts(restarted.iter().map(|(method, calls)| (method.as_str(), *calls)));
    Ok(phase)
}

/// The calls about routes from the start of the host until the series has reached this count.
async fn start_until(
    cluster: &mut Cluster,
    (series, labels): Series,
    count: usize,
) -> Result<Vec<(String, u64)>> {
    cluster.cloud()?.reset_calls().await?;
    cluster.start_host()?;
    wait::until_within(LIMIT, &format!("{count} of {series}"), async || {
        let metrics = cluster.host_metrics().await.unwrap_or_default();
        Ok((metrics::sum(&metrics, series, labels) as usize >= count).then_some(()))
    })
    .await
    .with_context(|| format!("{:?}", cluster.parts()))?;
    route_calls(cluster).await
}

async fn route_calls(cluster: &Cluster) -> Result<Vec<(String, u64)>> {
    let calls = cluster.cloud()?.call_counts().await?;
    Ok(calls.into_iter().filter(|(method, _)| method.ends_with("Routes")).collect())
}

async fn give_pod_cidrs(cluster: &Cluster, count: usize) -> Result<()> {
    let api = Api::<Node>::all(cluster.client.clone());
    stream::iter(0..count)
        .map(|number| {
            let api = &api;
            async move {
                let cidr = format!("10.{}.{}.0/24", number / 256, number % 256);
                let body = json!({"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}});
                api.patch_metadata(&realistic::name(number), &PatchParams::default(), &Patch::Merge(body))
                    .await
            }
        })
        .buffer_unordered(IN_FLIGHT)
        .try_for_each(async |_| Ok(()))
        .await
        .context("cannot give pod CIDRs to nodes")
}
