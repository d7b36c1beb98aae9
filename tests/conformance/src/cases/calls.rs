//! Calls to the cloud, as the cloud counts them.

use std::time::Duration;

use cloudprovider_proto::{
    defaults,
    v1alpha1::{InstanceResult, NodeRef},
};

use crate::{
    case::{
        Case, Outcome,
        Profile::{Instances, LoadBalancers},
        Stop,
    },
    provider::count,
    scenario::Variables,
    trial::{By, COUNT, Machine, Rpc, Trial, expect, failed, good},
};

const MACHINE: &[&str] = &["create-instance", "terminate-instance"];

pub(super) const CASES: &[Case] = &[
    Case::new(
        "CALL-01",
        Instances,
        "many nodes in a batch cost few calls of the cloud",
        &["batched-at-cloud"],
        &batched,
    )
    .hooks(&[COUNT])
    .extended(),
    Case::new(
        "CALL-02",
        Instances,
        "a read with max_staleness 0 was observed during the call",
        &["read-through"],
        &observed_now,
    )
    .hooks(MACHINE),
    Case::new(
        "CALL-03",
        Instances,
        "each read with max_staleness 0 asks the cloud",
        &["read-through"],
        &asks_each_time,
    )
    .hooks(&[COUNT, "create-instance", "terminate-instance"])
    .extended(),
    Case::new(
        "CALL-04",
        LoadBalancers,
        "each GetLoadBalancer asks the cloud",
        &["get-reads-through"],
        &get_asks,
    )
    .hooks(&[COUNT])
    .extended(),
    Case::new(
        "CALL-05",
        Instances,
        "no call of the cloud is begun once the deadline passed",
        &["deadline-honoured"],
        &bounded,
    )
    .hooks(&[COUNT, "slow-cloud", "restore-cloud-speed"])
    .extended(),
];

async fn batched(t: &Trial) -> Outcome {
    let most = count(t.provider().limits().max_batch_instances, defaults::MAX_BATCH);
    if !t.cloud_calls().await?.batches {
        return Err(Stop::NotAdvertised("the cloud has no call for many instances".to_owned()));
    }
    costs_few(t, (0..most.min(100)).map(|_| t.stranger()).collect()).await?;
    if t.scenario().lacks(MACHINE).is_some() {
        return Ok(());
    }
    // With provider IDs a provider may ask in another way.
    let machines = t.machines(most.min(8)).await?;
    costs_few(t, machines.iter().map(Machine::node).collect()).await
}

async fn costs_few(t: &Trial, nodes: Vec<NodeRef>) -> Outcome {
    let (many, before) = (nodes.len(), t.cloud_calls().await?.calls);
    good("BatchGetInstances", t.instances().batch_get_instances(t.ask(t.batch(nodes))).await)?;
    let calls = t.cloud_calls().await?.calls.saturating_sub(before);
    // Zones and pages cost calls too, but there must not be one per node.
    expect(calls <= (many as u64 / 2).max(1), format!("far fewer calls than {many} nodes"), calls)
}

/// When it was observed, in nanoseconds by the provider's own clock.
fn observed(result: &InstanceResult) -> Result<i128, Stop> {
    if !result.authoritative {
        return Err(Stop::NotAdvertised(
            "no authority is claimed for what is said of an instance".to_owned(),
        ));
    }
    let at =
        result.observed_at.ok_or_else(|| failed("observed_at beside authority", format!("{result:?}")))?;
    Ok(i128::from(at.seconds) * 1_000_000_000 + i128::from(at.nanos))
}

/// Two reads, two seconds apart, were observed at different times: whatever the clocks, and even if observed_at has
/// only whole seconds.
async fn observed_now(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let first = t.look(machine.node()).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let second = t.look(machine.node()).await?;
    let apart = observed(&second)? - observed(&first)?;
    expect(
        apart >= 1_000_000_000,
        "observed_at of a second read, two seconds later, to be later",
        format!("{apart} ns apart: {:?}, then {:?}", first.observed_at, second.observed_at),
    )
}

async fn asks_each_time(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    t.look(machine.node()).await?;
    grows(t, "a read of the instance", async || t.look(machine.node()).await.map(drop)).await
}

async fn get_asks(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    t.get(&wanted).await?;
    grows(t, "GetLoadBalancer", async || t.get(&wanted).await.map(drop)).await
}

/// Each of three calls queries the cloud.
async fn grows(t: &Trial, what: &str, call: impl AsyncFn() -> Outcome) -> Outcome {
    for _time in 0..3 {
        let before = t.cloud_calls().await?.calls;
        call().await?;
        let after = t.cloud_calls().await?.calls;
        expect(
            after > before,
            format!("{what} asks the cloud each time"),
            format!("{before}, then {after}"),
        )?;
    }
    Ok(())
}

/// Calls that are cut short while the cloud is slow.
const HURRIED: u64 = 8;

async fn bounded(t: &Trial) -> Outcome {
    let time = Duration::from_secs(2);
    let (idle, _) = t.idle_calls(time).await?;
    t.steer("slow-cloud", Variables::new()).await?;
    let deadline = Duration::from_millis(200);
    let hurried =
        (0..HURRIED).map(|_| Rpc::BatchGetInstances.call(t, By { deadline: Some(deadline), ..By::usual(t) }));
    for answer in futures::future::join_all(hurried).await {
        // Other cases test how they end.
        let _ended = answer?;
    }
    // Calls that began within the deadline have been counted by now.
    tokio::time::sleep(deadline).await;
    let (begun, _) = t.idle_calls(time).await?;
    expect(
        begun < idle + HURRIED / 2,
        format!("no call of the cloud after the deadline of {HURRIED} calls ({idle} while nothing happens)"),
        format!("{begun} calls"),
    )
}
