//! Batches of instances and strangers.

use std::collections::BTreeMap;

use cloudprovider_proto::{
    defaults,
    v1alpha1::{InstanceState, NodeRef},
};

use crate::{
    case::{Case, Outcome, Profile::Instances, Stop},
    provider::count,
    trial::{COUNT, Trial, expect, failed, good, has_addresses, same},
};

const KEYS: &[&str] = &["batch-keys"];

pub(super) const CASES: &[Case] = &[
    Case::new(
        "BATCH-07",
        Instances,
        "BatchGetInstances: the order of queries changes no answer",
        KEYS,
        &permuted,
    )
    .hooks(&["create-instance", "terminate-instance"]),
    Case::new(
        "BATCH-08",
        Instances,
        "BatchGetInstances: neither unknown nodes nor another one of the same instance cost known ones anything",
        KEYS,
        &mixed,
    )
    .hooks(&["create-instance", "terminate-instance"]),
    Case::new(
        "BATCH-10",
        Instances,
        "BatchGetInstances: more instances than many clouds answer at once are each told by their own keys, in few calls",
        &["batch-keys", "batched-at-cloud"],
        &many,
    )
    .hooks(&["create-instances", "terminate-instances"])
    .extended(),
];

/// More than the fifty that many clouds answer at once.
const MANY: usize = 120;

/// State and provider ID by node name.
async fn by_node(t: &Trial, nodes: &[NodeRef]) -> Result<BTreeMap<String, (InstanceState, String)>, Stop> {
    let request = t.batch(nodes.to_vec());
    let results = good("BatchGetInstances", t.instances().batch_get_instances(t.ask(request)).await)?.results;
    let mut by_node = BTreeMap::new();
    for (at, node) in nodes.iter().enumerate() {
        let key = format!("k{at}");
        let mut of = results.iter().filter(|result| result.key == key);
        match (of.next(), of.next()) {
            (Some(result), None) => {
                result.instance.iter().try_for_each(|instance| has_addresses(node, instance))?;
                let id =
                    result.instance.as_ref().map(|instance| instance.provider_id.clone()).unwrap_or_default();
                by_node.insert(node.name.clone(), (result.state(), id));
            }
            other => return Err(failed(format!("one result for key {key}"), format!("{other:?}"))),
        }
    }
    Ok(by_node)
}

async fn permuted(t: &Trial) -> Outcome {
    let machines = t.machines(2).await?;
    let mut nodes = vec![t.stranger(), t.stranger()];
    for machine in &machines {
        t.look_until(&machine.node(), &[InstanceState::Running]).await?;
        nodes.push(machine.node());
    }
    let first = by_node(t, &nodes).await?;
    for machine in machines {
        let id = first.get(&machine.name).map(|(_, id)| id);
        same(&format!("the provider ID of node {}:", machine.name), &id, &Some(&machine.provider_id))?;
    }
    for _order in 0..3 {
        t.shuffle(&mut nodes);
        same("the same answers:", &by_node(t, &nodes).await?, &first)?;
    }
    Ok(())
}

async fn mixed(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    t.look_until(&machine.node(), &[InstanceState::Running]).await?;
    let double = NodeRef { provider_id: machine.provider_id.clone(), ..t.stranger() };
    let nodes = [t.stranger(), machine.node(), t.stranger(), double.clone()];
    let answers = by_node(t, &nodes).await?;
    for name in [machine.name, double.name] {
        let known = answers.get(&name).map(|(state, _)| *state);
        expect(known == Some(InstanceState::Running), format!("{name} RUNNING beside strangers"), &answers)?;
    }
    Ok(())
}

async fn many(t: &Trial) -> Outcome {
    let mut nodes = Vec::new();
    for node in t.machines_at_once(MANY).await? {
        nodes.extend([node, t.stranger()]);
    }
    t.shuffle(&mut nodes);
    let counts = t.scenario().hooks.contains_key(COUNT);
    let before = if counts { Some(t.cloud_calls().await?) } else { None };
    let most = count(t.provider().limits().max_batch_instances, defaults::MAX_BATCH);
    for nodes in nodes.chunks(most) {
        let told = by_node(t, nodes).await?;
        for node in nodes {
            let id = told.get(&node.name).map(|(_, id)| id.as_str());
            same(&format!("the provider ID of node {}:", node.name), &id, &Some(node.provider_id.as_str()))?;
        }
    }
    let Some(before) = before.filter(|before| before.batches) else { return Ok(()) };
    let calls = t.cloud_calls().await?.calls.saturating_sub(before.calls);
    expect(calls <= MANY as u64 / 2, format!("far fewer calls than {} nodes", nodes.len()), calls)
}
