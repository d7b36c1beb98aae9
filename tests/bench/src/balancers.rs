//! Many Services of type LoadBalancer: created at once, joined by a node, left by a terminated machine, untouched by
//! labels.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use test_cluster::{nodes, services, wait};

use crate::{
    realistic,
    report::Phase,
    subject::{Kind, Subject},
    usage::Usage,
};

/// The limit of provider calls for a node that joins or leaves, whatever the number of Services: one query about it,
/// and one batch of updates. A third belongs to a sweep that may happen meanwhile.
const MAX_CALLS: u64 = 3;
/// The nodes that join and then leave.
pub(crate) const NEWCOMERS: [usize; 2] = [65_000, 65_001];
const IN_FLIGHT: usize = 16;
const LIMIT: Duration = Duration::from_secs(300);
/// Long enough for changes to be batched, and for upstream's updates.
const QUIET: Duration = Duration::from_secs(5);

/// Keeps the burst of one phase out of the next: the host passes on a first change after a quiet second.
const APART: Duration = Duration::from_secs(3);

const TERMINATED: &str = "a machine that terminates, its kubelet silent";

/// Creates all Services at once, and waits until each has its address.
pub(crate) async fn made_at_once(subject: &mut Subject, count: usize) -> Result<Phase> {
    subject.reset_calls().await?;
    let pids = subject.pids()?;
    let (before, begun) = (Usage::of(&pids)?, Instant::now());
    let client = &subject.cluster.client;
    stream::iter(0..count)
        .map(|number| services::create(client, services::load_balancer(&format!("service-{number:03}"))))
        .buffer_unordered(IN_FLIGHT)
        .try_for_each(async |_| Ok(()))
        .await?;
    let api = Api::<Service>::namespaced(client.clone(), "default");
    wait::until_within(LIMIT, "all Services have their addresses", async || {
        let list = api.list(&ListParams::default()).await?;
        Ok((list.items.iter().filter(|service| !services::ingress(service).is_empty()).count() >= count)
            .then_some(()))
    })
    .await
    .with_context(|| subject.parts())?;
    let mut phase = Phase::new(format!("{count} Services made at once"));
    phase.value("seconds until each has its address", begun.elapsed().as_secs_f64(), 2);
    phase.value("CPU seconds", Usage::of(&pids)?.cpu_since(before), 2);
    let calls = subject.calls().await?;
    phase.counts(calls.iter().map(|(method, calls)| (method.as_str(), *calls)));
    Ok(phase)
}

/// A node joins; waits until it is behind all balancers.
pub(crate) async fn joined(subject: &Subject, number: usize, count: usize) -> Result<Phase> {
    tokio::time::sleep(APART).await;
    subject.reset_calls().await?;
    let begun = Instant::now();
    subject.create_machine(number).await?;
    nodes::register(&subject.cluster.client, realistic::node(number)).await?;
    let newcomer = realistic::name(number);
    wait::until_within(LIMIT, "the node stands behind all balancers", async || {
        Ok((subject.behind(&newcomer).await? >= count).then_some(()))
    })
    .await
    .with_context(|| subject.parts())?;
    let mut phase = Phase::new(format!("a node joining {count} Services"));
    phase.value("seconds until it is behind all balancers", begun.elapsed().as_secs_f64(), 2);
    gated(&mut phase, subject, MAX_CALLS).await?;
    Ok(phase)
}

/// That node's machine is terminated and its kubelet falls silent; waits until it is behind no balancer and its Node is
/// deleted.
pub(crate) async fn terminated(subject: &Subject, number: usize) -> Result<Phase> {
    tokio::time::sleep(APART).await;
    subject.reset_calls().await?;
    let (name, client) = (realistic::name(number), &subject.cluster.client);
    let begun = Instant::now();
    subject.terminate_machine(&name).await?;
    nodes::set_ready(client, &name, "Unknown").await?;
    let api = Api::<Node>::all(client.clone());
    let (mut out, mut gone) = (None, None);
    wait::until_within(LIMIT, "the machine is out of all balancers, and its Node gone", async || {
        if out.is_none() && subject.behind(&name).await? == 0 {
            out = Some(begun.elapsed().as_secs_f64());
        }
        if gone.is_none() && api.get_metadata_opt(&name).await?.is_none() {
            gone = Some(begun.elapsed().as_secs_f64());
        }
        Ok(out.zip(gone))
    })
    .await
    .map(|(out, gone)| {
        let mut phase = Phase::new(TERMINATED);
        phase.value("seconds until it is out of all balancers", out, 2);
        phase.value("seconds until its Node is gone", gone, 2);
        phase
    })
    .with_context(|| subject.parts())
}

/// Likewise, while the provider's watch omits changes, so that only polling finds them.
pub(crate) async fn terminated_unwatched(subject: &Subject, number: usize) -> Result<Phase> {
    let mock = subject.mock()?;
    mock.fault("drop-changes").await?;
    let phase =
        terminated(subject, number).await?.titled(format!("{TERMINATED}, without the provider's watch"));
    mock.clear_faults().await?;
    Ok(phase)
}

/// A label on all nodes that the provider did not ask for: it must cost no call.
pub(crate) async fn labelled(subject: &mut Subject, count: usize) -> Result<Phase> {
    subject.reset_calls().await?;
    let pids = subject.pids()?;
    let before = Usage::of(&pids)?;
    let api = Api::<Node>::all(subject.cluster.client.clone());
    let body = json!({ "metadata": { "labels": { "example.com/unasked": "for" } } });
    stream::iter(0..count)
        .map(|number| {
            let (api, body) = (&api, Patch::Merge(&body));
            async move { api.patch_metadata(&realistic::name(number), &PatchParams::default(), &body).await }
        })
        .buffer_unordered(IN_FLIGHT)
        .try_for_each(async |_| Ok(()))
        .await?;
    // Nothing signals that nothing happens: time has to pass.
    tokio::time::sleep(QUIET).await;
    let mut phase = Phase::new(format!("a label that nobody asked for, on {count} nodes"));
    gated(&mut phase, subject, 0).await?;
    phase.value("CPU seconds", Usage::of(&pids)?.cpu_since(before), 2);
    Ok(phase)
}

async fn gated(phase: &mut Phase, subject: &Subject, most: u64) -> Result<()> {
    let calls = subject.calls().await?;
    let total = calls.iter().map(|(_, calls)| calls).sum();
    match subject.kind {
        Kind::Mock => phase.gate("provider calls", total, 0..=most),
        Kind::Bridge | Kind::Upstream => phase.count("cloud calls", total),
    }
    phase.counts(calls.iter().map(|(method, calls)| (method.as_str(), *calls)));
    Ok(())
}
