//! Which instance is meant, and how much of it is described.

use cloudprovider_proto::v1alpha1::{
    BatchGetInstancesRequest, Capability, Instance, InstanceResult, InstanceState, InstanceView, NodeRef,
};

use crate::{
    case::{Case, Outcome, Profile::Instances, Stop},
    trial::{Trial, expect, failed, good, same},
};

const MACHINE: &[&str] = &["create-instance", "terminate-instance"];

pub(super) const CASES: &[Case] = &[
    Case::new("INST-01", Instances, "a new node is found without a provider ID, and runs", &[], &by_name)
        .words(&["| the instance exists | OK, item PENDING .. TERMINATING |"])
        .hooks(MACHINE),
    Case::new(
        "INST-02",
        Instances,
        "a node is found by its provider ID, whatever its name",
        &["node-by-provider-id"],
        &by_provider_id,
    )
    .hooks(MACHINE),
    Case::new(
        "INST-03",
        Instances,
        "the provider ID wins over another instance's name",
        &["node-by-provider-id"],
        &id_over_name,
    )
    .hooks(MACHINE),
    Case::new(
        "INST-10",
        Instances,
        "an answer with authority says when it was observed",
        &["observed-at"],
        &observed_at,
    )
    .hooks(MACHINE),
    Case::new("INST-11", Instances, "the view EXISTENCE tells state, provider ID and name", &[], &existence)
        .words(&["Only state, provider ID and name."])
        .hooks(MACHINE),
    Case::new(
        "INST-16",
        Instances,
        "the view METADATA describes as ALL does, and may answer EXISTS",
        &[],
        &metadata,
    )
    .words(&["but not whether the instance runs: EXISTS is a full result."])
    .hooks(MACHINE),
    Case::new("INST-12", Instances, "a view of a newer contract is read as ALL", &[], &unknown_view)
        .words(&["Read as ALL.", "an unknown enum value is read as zero"])
        .hooks(MACHINE),
    Case::new(
        "INST-14",
        Instances,
        "a node that nobody knows is ABSENT or NOT_OWNED, never an error",
        &[],
        &unknown_node,
    )
    .words(&[
        "InstanceState is whether an instance exists and in which state. It is a result, never an error.",
    ]),
    Case::new("INST-15", Instances, "another cloud's provider ID is NOT_OWNED", &[], &foreign_id)
        .words(&["The provider ID or name belongs to another cloud, account or region."]),
    Case::new("INST-18", Instances, "a provider ID that nobody makes is NOT_OWNED", &[], &malformed_id)
        .words(&["a provider ID that has one of this provider's prefixes but a form that it never creates"]),
    Case::new(
        "INST-17",
        Instances,
        "without a provider ID, absence is evidence only where the cloud's key is the node's name",
        &["absence-needs-id"],
        &absence_by_name,
    ),
];

/// The description of a running instance.
pub(super) async fn described(t: &Trial, node: NodeRef) -> Result<Instance, Stop> {
    let result = t.look_until(&node, &[InstanceState::Running]).await?;
    result.instance.clone().ok_or_else(|| failed("an instance beside RUNNING", format!("{result:?}")))
}

async fn by_name(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let instance = described(t, machine.new_node()).await?;
    same("the provider ID", &instance.provider_id, &machine.provider_id)
}

async fn by_provider_id(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let node = NodeRef { provider_id: machine.provider_id.clone(), ..t.stranger() };
    let instance = described(t, node).await?;
    same("the provider ID", &instance.provider_id, &machine.provider_id)
}

async fn id_over_name(t: &Trial) -> Outcome {
    let machines = t.machines(2).await?;
    let mixed = NodeRef { provider_id: machines[0].provider_id.clone(), ..machines[1].new_node() };
    let instance = described(t, mixed).await?;
    same("the provider ID", &instance.provider_id, &machines[0].provider_id)
}

async fn observed_at(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    for node in [machine.node(), machine.new_node(), t.stranger()] {
        let result = t.look(node).await?;
        expect(
            !result.authoritative || result.observed_at.is_some(),
            "observed_at beside authoritative",
            &result,
        )?;
    }
    Ok(())
}

async fn existence(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    described(t, machine.node()).await?;
    let results = seen(t, InstanceView::Existence.into(), machine.node()).await?;
    let told = results.first().is_some_and(|result| {
        let id = result.instance.as_ref().map(|instance| &instance.provider_id);
        result.state() == InstanceState::Running && id == Some(&machine.provider_id)
    });
    expect(told, "RUNNING with its provider ID", results)
}

async fn metadata(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let whole = described(t, machine.node()).await?;
    let results = seen(t, InstanceView::Metadata.into(), machine.node()).await?;
    let told = results.iter().any(|result| {
        let instance = result.instance.clone().unwrap_or_default();
        matches!(result.state(), InstanceState::Running | InstanceState::Exists)
            && Instance { pod_cidrs: whole.pod_cidrs.clone(), ..instance } == whole
    });
    expect(told, "RUNNING or EXISTS, described as ALL describes it", results)
}

async fn seen(t: &Trial, view: i32, node: NodeRef) -> Result<Vec<InstanceResult>, Stop> {
    let request = BatchGetInstancesRequest { view, ..t.batch(vec![node]) };
    let answer = t.instances().batch_get_instances(t.ask(request)).await;
    Ok(good("BatchGetInstances", answer)?.results)
}

async fn unknown_view(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    let whole = described(t, machine.node()).await?;
    let results = seen(t, 99, machine.node()).await?;
    let instance = results.into_iter().next().and_then(|result| result.instance).unwrap_or_default();
    same("as much as ALL tells:", &instance.addresses, &whole.addresses)
}

async fn unknown_node(t: &Trial) -> Outcome {
    let result = t.look(t.stranger()).await?;
    let fits = matches!(result.state(), InstanceState::Absent | InstanceState::NotOwned);
    expect(fits && result.instance.is_none(), "ABSENT or NOT_OWNED, and no instance", result)
}

async fn foreign_id(t: &Trial) -> Outcome {
    let id = "no-such-cloud-0b9c://nowhere/i-1".to_owned();
    let result = t.look(NodeRef { provider_id: id, ..t.stranger() }).await?;
    expect(result.state() == InstanceState::NotOwned, "NOT_OWNED", result)
}

async fn malformed_id(t: &Trial) -> Outcome {
    // A prefix alone names no instance in any cloud; nor does a text without one.
    let prefixes = &t.provider().info.provider_id_prefixes;
    let texts = prefixes.iter().filter(|prefix| !prefix.is_empty()).cloned();
    for id in texts.chain(["no-scheme-0b9c".to_owned()]) {
        let result = t.look(NodeRef { provider_id: id.clone(), ..t.stranger() }).await?;
        expect(result.state() == InstanceState::NotOwned, format!("{id}: NOT_OWNED"), result)?;
    }
    Ok(())
}

async fn absence_by_name(t: &Trial) -> Outcome {
    let result = t.look(t.stranger()).await?;
    let evidence = result.state() == InstanceState::Absent && result.authoritative;
    let fits = !evidence || t.provider().can(Capability::InstancesKeyedByName);
    expect(fits, "no authority, or CAPABILITY_INSTANCES_KEYED_BY_NAME advertised", result)
}
