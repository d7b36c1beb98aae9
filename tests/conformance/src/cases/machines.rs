//! Instances that are stopped, started and terminated.

use cloudprovider_proto::v1alpha1::{ErrorReason, InstanceState, NodeRef};

use crate::{
    case::{Case, Outcome, Profile::Instances, Stop},
    trial::{COUNT, Trial, expect, failed, same},
};

const STOP: &[&str] = &["create-instance", "stop-instance", "start-instance", "terminate-instance"];
const TERMINATE: &[&str] = &["create-instance", "terminate-instance"];

pub(super) const CASES: &[Case] = &[
    Case::new("MACH-01", Instances, "a stopped instance still exists", &["stopped-exists"], &stopped)
        .hooks(STOP),
    Case::new("MACH-02", Instances, "an instance that was started again runs", &["stopped-exists"], &started)
        .hooks(STOP),
    Case::new(
        "MACH-03",
        Instances,
        "the provider ID outlives stop and start",
        &["provider-id-stable"],
        &same_id,
    )
    .hooks(STOP),
    Case::new(
        "MACH-04",
        Instances,
        "a terminated instance becomes ABSENT with authority",
        &["absent-means-looked", "observed-at"],
        &terminated,
    )
    .hooks(TERMINATE),
    Case::new(
        "MACH-05",
        Instances,
        "a read with max_staleness 0 sees a change at once",
        &["read-through"],
        &read_through,
    )
    .hooks(STOP),
    Case::new(
        "MACH-06",
        Instances,
        "an instance that goes is never taken for one that runs again",
        &[],
        &no_return,
    )
    .words(&["The instance is being deleted and will not come back."])
    .hooks(TERMINATE),
    Case::new(
        "MACH-07",
        Instances,
        "a name that is used again means the new instance, the old ID the old one",
        &["node-by-provider-id"],
        &name_again,
    )
    .hooks(TERMINATE)
    .extended(),
    Case::new(
        "MACH-08",
        Instances,
        "an instance that was looked for before it was there is found as soon as it is",
        &["read-through"],
        &absent_before,
    )
    .hooks(TERMINATE),
    Case::new(
        "MACH-09",
        Instances,
        "a node whose name two instances have is neither of them",
        &[],
        &two_of_a_name,
    )
    .words(&["More than one instance matches the node."])
    .hooks(TERMINATE)
    .extended(),
];

async fn stopped(t: &Trial) -> Outcome {
    let machine = t.own_machine().await?;
    t.look_until(&machine.node(), &[InstanceState::Running]).await?;
    t.steer_machine("stop-instance", &machine).await?;
    let result = t
        .look_until(
            &machine.node(),
            &[InstanceState::Stopped, InstanceState::Absent, InstanceState::NotOwned],
        )
        .await?;
    expect(result.state() == InstanceState::Stopped, "STOPPED", result)
}

async fn started(t: &Trial) -> Outcome {
    stopped_one(t).await.map(drop)
}

/// An instance that was stopped and started.
async fn stopped_one(t: &Trial) -> Result<NodeRef, Stop> {
    let machine = t.own_machine().await?;
    t.look_until(&machine.node(), &[InstanceState::Running]).await?;
    t.steer_machine("stop-instance", &machine).await?;
    t.look_until(&machine.node(), &[InstanceState::Stopped]).await?;
    t.steer_machine("start-instance", &machine).await?;
    t.look_until(&machine.node(), &[InstanceState::Running]).await?;
    Ok(machine.node())
}

async fn same_id(t: &Trial) -> Outcome {
    let node = stopped_one(t).await?;
    let nameless = NodeRef { provider_id: String::new(), ..node.clone() };
    let result = t.look_until(&nameless, &[InstanceState::Running]).await?;
    same("the provider ID", &result.instance.unwrap_or_default().provider_id, &node.provider_id)
}

async fn terminated(t: &Trial) -> Outcome {
    let machine = t.own_machine().await?;
    t.look_until(&machine.node(), &[InstanceState::Running]).await?;
    t.steer_machine("terminate-instance", &machine).await?;
    let result = t.look_until(&machine.node(), &[InstanceState::Absent]).await?;
    let evident = result.authoritative && result.observed_at.is_some();
    expect(evident, "ABSENT, authoritative, with observed_at", result)
}

async fn read_through(t: &Trial) -> Outcome {
    let machine = t.own_machine().await?;
    t.look_until(&machine.node(), &[InstanceState::Running]).await?;
    t.steer_machine("stop-instance", &machine).await?;
    // `look` queries with max_staleness 0; the hook returned when the cloud knew.
    let result = t.look_until(&machine.node(), &[InstanceState::Stopped]).await;
    result.map(drop).map_err(|_| failed("STOPPED, read from the cloud now", "the state from before the stop"))
}

async fn no_return(t: &Trial) -> Outcome {
    let machine = t.own_machine().await?;
    t.look_until(&machine.node(), &[InstanceState::Running]).await?;
    t.steer_machine("terminate-instance", &machine).await?;
    t.look_until(&machine.node(), &[InstanceState::Terminating, InstanceState::Absent]).await?;
    for _look in 0..5 {
        let result = t.look(machine.node()).await?;
        let going = matches!(result.state(), InstanceState::Terminating | InstanceState::Absent);
        expect(going, "TERMINATING or ABSENT", result)?;
    }
    Ok(())
}

async fn two_of_a_name(t: &Trial) -> Outcome {
    let one = t.own_machine().await?;
    let other = t.machine_named(one.name.clone()).await?;
    if other.name != one.name || other.provider_id == one.provider_id {
        return Err(Stop::NotRun("two instances of this cloud cannot have one name".to_owned()));
    }
    for machine in [&one, &other] {
        t.look_until(&machine.node(), &[InstanceState::Running]).await?;
    }
    let nameless = NodeRef { provider_id: String::new(), system_uuid: String::new(), ..one.node() };
    let result = t.look(NodeRef { addresses: Vec::new(), ..nameless }).await?;
    let reason = result.error.as_ref().map(|error| error.reason());
    expect(reason == Some(ErrorReason::InstanceAmbiguous), "INSTANCE_AMBIGUOUS", result)
}

async fn absent_before(t: &Trial) -> Outcome {
    let ahead = t.stranger();
    let result = t.look(ahead.clone()).await?;
    let fits = matches!(result.state(), InstanceState::Absent | InstanceState::NotOwned);
    expect(fits, "ABSENT or NOT_OWNED before it is there", result)?;
    let machine = t.machine_named(ahead.name).await?;
    let counts = t.scenario().lacks(&[COUNT]).is_none();
    for node in [machine.new_node(), machine.node()] {
        t.eventually(&format!("node {}: RUNNING or PENDING", node.name), async || {
            let before = if counts { t.cloud_calls().await?.calls } else { 0 };
            let result = t.look(node.clone()).await?;
            if matches!(result.state(), InstanceState::Running | InstanceState::Pending) {
                return Ok(Ok(()));
            }
            // A cloud may lag behind itself; a provider that does not ask it does not know.
            let asked = !counts || t.cloud_calls().await?.calls > before;
            expect(asked, "the instance, or a read that asks the cloud", &result)?;
            Ok(Err(format!("{result:?}")))
        })
        .await?;
    }
    Ok(())
}

async fn name_again(t: &Trial) -> Outcome {
    let (old, new) = (t.own_machine().await?, t.own_machine().await?);
    t.steer_machine("terminate-instance", &old).await?;
    t.look_until(&old.node(), &[InstanceState::Absent]).await?;
    let mixed = NodeRef { provider_id: old.provider_id.clone(), ..new.new_node() };
    let result = t.look(mixed).await?;
    expect(result.state() == InstanceState::Absent, "ABSENT, as the provider ID says", result)?;
    t.look_until(&new.new_node(), &[InstanceState::Running]).await.map(drop)
}
