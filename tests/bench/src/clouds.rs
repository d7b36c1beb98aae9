//! Two clouds of 100 nodes each behind one host. One hangs for a minute while new nodes and Services of both arrive:
//! what does that cost the other?

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, future::try_join, stream};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use serde_json::{Value, json};
use test_cluster::{Cloud, Cluster, Neighbour, Options, Profile, nodes, services};

use crate::{Arguments, realistic, report::Phase};

const NODES: usize = 100;
const IN_FLIGHT: usize = 16;
const HUNG: Duration = Duration::from_secs(60);
/// Before and after, so that both contain what grows with time.
const CALM: Duration = Duration::from_secs(30);
/// The interval of arrivals in the measured cloud.
const PAUSE: Duration = Duration::from_millis(200);
/// The interval of arrivals in the hanging cloud.
const PACE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(3);
const LIMIT: Duration = Duration::from_secs(120);
const LABEL: &str = "example.com/cloud";

/// The durations of one window's arrivals, in seconds.
#[derive(Debug, Default)]
struct Latencies {
    nodes: Vec<f64>,
    services: Vec<f64>,
}

/// A cloud, and the names of its objects.
struct Side {
    name: &'static str,
    cloud: Cloud,
}

pub(crate) async fn measure(arguments: &Arguments) -> Result<Phase> {
    let (cluster, neighbour) = start(arguments).await?;
    let calm = Side { name: "calm", cloud: cluster.cloud()? };
    let hangs = Side { name: "hangs", cloud: neighbour.cloud()? };
    println!("\n# two clouds: preparing {NODES} nodes in each");
    for side in [&calm, &hangs] {
        stream::iter(0..NODES)
            .map(async |number| arrives(&cluster, side, number).await.map(drop))
            .buffer_unordered(IN_FLIGHT)
            .try_collect::<()>()
            .await?;
    }
    let mut number = NODES;
    let before = window(&cluster, &calm, &hangs, CALM, &mut number).await?;
    hangs.cloud.fault("hang").await?;
    let hung = window(&cluster, &calm, &hangs, HUNG, &mut number).await?;
    hangs.cloud.clear_faults().await?;
    let after = window(&cluster, &calm, &hangs, CALM, &mut number).await?;

    let mut phase = Phase::new("two clouds, one hangs for a minute: medians of the other's");
    type Of = fn(&Latencies) -> &[f64];
    let kinds: [(&str, Of); 2] = [
        ("a node until it is initialised", |of| &of.nodes),
        ("a Service until its address", |of| &of.services),
    ];
    for (name, of) in kinds {
        let quiet = (median(of(&before)) + median(of(&after))) / 2.0;
        phase.value(format!("{name}, seconds, before and after"), quiet, 3);
        phase.value(format!("{name}, seconds, meanwhile"), median(of(&hung)), 3);
        phase.value(format!("{name}, ratio"), median(of(&hung)) / quiet, 2);
        phase.count(format!("{name}, arrivals meanwhile"), of(&hung).len() as u64);
    }
    Ok(phase)
}

async fn start(arguments: &Arguments) -> Result<(Cluster, Neighbour)> {
    let profile = if arguments.dev { Profile::Dev } else { Profile::Release };
    let mut options = Options { profile, ..Options::default() }.unrecorded();
    options.host.extend_from_slice(&arguments.host_flags);
    let latency = format!("--latency={}", arguments.latency);
    let mut cluster = options.provider_flag(latency.clone()).start_without_host().await?;
    let neighbour = cluster.start_neighbour("hangs", &[latency]).await?;
    cluster.add_host_flag(neighbour.host_flag());
    cluster.add_host_flag("--default-load-balancer-provider=mock");
    cluster.add_host_flag(format!("--provider-node-selector=hangs={LABEL}=hangs"));
    cluster.start_host()?;
    cluster.host_ready().await?;
    Ok((cluster, neighbour))
}

/// Arrivals in one cloud, one after the other, while more arrive in the other at a steady rate.
async fn window(
    cluster: &Cluster,
    calm: &Side,
    hangs: &Side,
    lasts: Duration,
    number: &mut usize,
) -> Result<Latencies> {
    let first = *number;
    let begun = Instant::now();
    let mut taken = Latencies::default();
    let measured = async {
        while begun.elapsed() < lasts {
            taken.nodes.push(initialised(cluster, calm, *number).await?);
            taken.services.push(served(cluster, calm, *number).await?);
            *number += 1;
            tokio::time::sleep(PAUSE).await;
        }
        anyhow::Ok(())
    };
    let beside = async {
        let mut turn = first;
        while begun.elapsed() < lasts {
            arrives(cluster, hangs, turn).await?;
            services::create(&cluster.client, service(hangs, turn)).await?;
            turn += 1;
            tokio::time::sleep(PACE).await;
        }
        anyhow::Ok(())
    };
    try_join(measured, beside).await?;
    Ok(taken)
}

fn node_name(side: &Side, number: usize) -> String {
    format!("{}-{}", side.name, realistic::name(number))
}

fn service(side: &Side, number: usize) -> Value {
    let mut service = services::load_balancer(&format!("{}-{number}", side.name));
    let provider = if side.name == "hangs" { "hangs" } else { "mock" };
    service["metadata"]["annotations"] = json!({"cloudprovider.ccm/load-balancer-provider": provider});
    service
}

/// Creates a machine and its node.
async fn arrives(cluster: &Cluster, side: &Side, number: usize) -> Result<String> {
    let name = node_name(side, number);
    side.cloud.create_instance(&name, realistic::zone(number)).await?;
    let mut node = realistic::node(number);
    node["metadata"]["name"] = json!(name);
    node["metadata"]["labels"][LABEL] = json!(side.name);
    nodes::register(&cluster.client, node).await?;
    Ok(name)
}

async fn initialised(cluster: &Cluster, side: &Side, number: usize) -> Result<f64> {
    let name = arrives(cluster, side, number).await?;
    let api = Api::<Node>::all(cluster.client.clone());
    seconds_until(cluster, async || Ok(!nodes::is_uninitialized(&api.get(&name).await?))).await
}

async fn served(cluster: &Cluster, side: &Side, number: usize) -> Result<f64> {
    let made = services::create(&cluster.client, service(side, number)).await?;
    let name = made.metadata.name.unwrap_or_default();
    let api = Api::<Service>::namespaced(cluster.client.clone(), "default");
    let taken =
        seconds_until(cluster, async || Ok(!services::ingress(&api.get(&name).await?).is_empty())).await?;
    // There are few addresses for Services.
    api.delete(&name, &Default::default()).await?;
    Ok(taken)
}

/// Checks more often than tests do: the measured durations are some hundredths of a second.
async fn seconds_until(cluster: &Cluster, mut is: impl AsyncFnMut() -> Result<bool>) -> Result<f64> {
    let begun = Instant::now();
    while !is().await? {
        ensure!(begun.elapsed() < LIMIT, "waited {LIMIT:?} in vain\n{:?}", cluster.parts());
        tokio::time::sleep(STEP).await;
    }
    Ok(begun.elapsed().as_secs_f64())
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
