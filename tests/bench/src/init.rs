//! The first start of a manager in a cluster full of uninitialised nodes.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{ListParams, PartialObjectMeta, WatchEvent, WatchParams},
};
use parking_lot::Mutex;
use test_cluster::{nodes, wait};

use crate::{
    apiserver,
    report::Phase,
    subject::{Kind, Subject},
    usage::Usage,
};

/// The limit of provider calls for 2,000 nodes.
const MAX_CALLS: u64 = 20;
const LIMIT: Duration = Duration::from_secs(600);
/// The label that a node has once its cloud has described it.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Starts the manager and waits until all nodes are initialised.
pub(crate) async fn measure(subject: &mut Subject, count: usize, [raw, ours]: [f64; 2]) -> Result<Phase> {
    let described = Described::watch(&subject.cluster.client).await?;
    let before = apiserver::requests(&subject.cluster).await?;
    let closed_before = apiserver::closed_node_watches(&subject.cluster).await?;
    subject.reset_calls().await?;
    let begun = Instant::now();
    subject.start_manager().await?;
    let mut first = None;
    wait::until_within(LIMIT, "all nodes described", async || {
        let done = described.count();
        if done > 0 {
            first.get_or_insert((begun.elapsed().as_secs_f64(), done));
        }
        Ok((done >= count).then_some(()))
    })
    .await
    .with_context(|| subject.parts())?;
    let mut seconds = begun.elapsed().as_secs_f64();
    let requests = apiserver::since(&before, &apiserver::requests(&subject.cluster).await?);
    // The host is then done with the node; upstream writes the addresses afterwards.
    if initialised(&subject.cluster.client).await? < count {
        wait::until_within(LIMIT, "all nodes initialised", async || {
            Ok((initialised(&subject.cluster.client).await? >= count).then_some(()))
        })
        .await
        .with_context(|| subject.parts())?;
        seconds = begun.elapsed().as_secs_f64();
    }
    let flow = first.map_or(0.0, |(since, before)| (count - before) as f64 / (seconds - since));

    let mut phase = Phase::new(format!("initialisation of {count} nodes, from the start of the process"));
    phase.value("seconds", seconds, 1);
    // Each node takes two writes.
    phase.value("share of half the rate of merges", count as f64 / seconds / (raw / 2.0), 2);
    phase.value("the same, from the first node on", flow / (raw / 2.0), 2);
    phase.value("share of what these writes can reach, from the first node on", flow / (ours / 2.0), 2);
    calls_and_requests(&mut phase, subject, count, &requests).await?;
    let closed = apiserver::closed_node_watches(&subject.cluster).await? - closed_before;
    phase.count("Node watches that the apiserver closed", closed);
    Usage::of(&subject.pids()?)?.add_to(&mut phase);
    Ok(phase)
}

async fn calls_and_requests(
    phase: &mut Phase,
    subject: &Subject,
    count: usize,
    requests: &apiserver::Requests,
) -> Result<()> {
    let calls = subject.calls().await?;
    let total = calls.iter().filter(|(method, _)| method.contains("Instance")).map(|(_, calls)| calls).sum();
    let gated = subject.kind == Kind::Mock;
    if gated {
        phase.gate("provider calls for instances", total, 0..=MAX_CALLS * (count as u64).div_ceil(2000));
    } else {
        phase.count("cloud calls for instances", total);
    }
    phase.counts(calls.iter().map(|(method, calls)| (method.as_str(), *calls)));
    // A write that conflicts is decided anew after another read of the node: rare, so a few are tolerated.
    let repeats = 2 + count as u64 / 50;
    for ((verb, resource), requests) in requests {
        let name = format!("{verb} {resource}");
        match name.as_str() {
            "PATCH nodes" | "PATCH nodes/status" if gated => {
                phase.gate(name, *requests, count as u64..=count as u64 + repeats);
            }
            "GET nodes" if gated => phase.gate(name, *requests, 0..=repeats),
            _ => phase.count(name, *requests),
        }
    }
    Ok(())
}

/// The nodes that their cloud has described, from a watch of their metadata, like any other client of the cluster.
struct Described(Arc<Mutex<HashSet<String>>>, tokio::task::JoinHandle<()>);

impl Described {
    async fn watch(client: &Client) -> Result<Self> {
        let api = Api::<Node>::all(client.clone());
        let names = Arc::<Mutex<HashSet<String>>>::default();
        let (seen, mut version) = (Arc::clone(&names), "0".to_owned());
        let params = WatchParams::default().labels(ZONE).timeout(290);
        let task = tokio::spawn(async move {
            loop {
                let Ok(events) = api.watch_metadata(&params, &version).await else { continue };
                let mut events = events.boxed();
                while let Some(Ok(event)) = events.next().await {
                    if let WatchEvent::Added(node) | WatchEvent::Modified(node) = event {
                        version = node.metadata.resource_version.clone().unwrap_or_default();
                        seen.lock().extend(name(node));
                    }
                }
            }
        });
        Ok(Self(names, task))
    }

    fn count(&self) -> usize {
        self.0.lock().len()
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        self.1.abort();
    }
}

fn name(node: PartialObjectMeta<Node>) -> Option<String> {
    node.metadata.name
}

async fn initialised(client: &Client) -> Result<usize> {
    let list = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?.items;
    ensure!(!list.is_empty(), "the nodes are gone");
    let done = list.iter().filter(|node| {
        !nodes::is_uninitialized(node)
            && !nodes::addresses(node, "InternalIP").is_empty()
            && node.spec.as_ref().is_some_and(|spec| spec.provider_id.is_some())
    });
    Ok(done.count())
}
