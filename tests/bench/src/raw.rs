//! What the apiserver itself can do: the yardsticks.

use std::time::Instant;

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, WatchParams},
};
use serde_json::{Value, json};
use test_cluster::{Cluster, nodes};

use crate::realistic::{self, name};

const IN_FLIGHT: usize = 32;
const ROUNDS: usize = 2;

/// PATCHes per second, with 32 in flight and one Node watch open.
pub(crate) async fn measure(cluster: &Cluster, count: usize) -> Result<f64> {
    let api = Api::<Node>::all(cluster.client.clone());
    let mut events = api.watch(&WatchParams::default().timeout(290), "0").await?.boxed();
    let reader = tokio::spawn(async move { while events.next().await.is_some() {} });
    // Not counted: the first requests open connections.
    patch(&api, count.min(100), 0).await?;
    let begun = Instant::now();
    for round in 1..=ROUNDS {
        patch(&api, count, round).await?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    reader.abort();
    Ok((count * ROUNDS) as f64 / seconds)
}

async fn patch(api: &Api<Node>, count: usize, round: usize) -> Result<()> {
    let body = json!({ "metadata": { "annotations": { "example.com/round": round.to_string() } } });
    let parameters = PatchParams::default();
    stream::iter(0..count)
        .map(|number| {
            let (body, parameters) = (Patch::Merge(&body), &parameters);
            async move { api.patch_metadata(&name(number), parameters, &body).await.map(drop) }
        })
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await?;
    Ok(())
}

/// Nodes that only this yardstick writes.
const OURS: usize = 40_000;
const MARK: &str = "example.com/yardstick";

/// Writes per second that initialise nodes, as the host sends them: the addresses, then everything else, each with
/// tests of what it replaces. They cost the apiserver more than a merge patch of one annotation.
pub(crate) async fn initialisation(cluster: &Cluster, count: usize) -> Result<f64> {
    let api = Api::<Node>::all(cluster.client.clone());
    let registered = stream::iter(0..count).map(async |number| {
        let mut node = realistic::node(OURS + number);
        node["metadata"]["labels"][MARK] = json!("");
        nodes::register(&cluster.client, node).await
    });
    let registered: Vec<Node> = registered.buffer_unordered(IN_FLIGHT).try_collect().await?;
    let begun = Instant::now();
    stream::iter(&registered)
        .map(|node| initialise(&api, node))
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await?;
    let seconds = begun.elapsed().as_secs_f64();
    api.delete_collection(&DeleteParams::default(), &ListParams::default().labels(MARK)).await?;
    Ok((count * 2) as f64 / seconds)
}

async fn initialise(api: &Api<Node>, node: &Node) -> Result<()> {
    let (name, uid) = (node.metadata.name.clone().unwrap_or_default(), json!(node.metadata.uid));
    let status = node.status.clone().unwrap_or_default();
    let addresses = json!([
        { "type": "InternalIP", "address": "10.0.0.1" },
        { "type": "Hostname", "address": name },
    ]);
    let mut operations = vec![test("/metadata/uid", uid.clone())];
    operations.extend(replace("/status/addresses", json!(status.addresses), addresses));
    let patch = Patch::<Node>::Json(serde_json::from_value(Value::Array(operations))?);
    api.patch_status(&name, &PatchParams::default(), &patch).await?;

    let mut operations = vec![test("/metadata/uid", uid)];
    operations.extend(replace("/spec/providerID", Value::Null, json!(format!("yardstick://{name}"))));
    for label in [
        "topology.kubernetes.io~1zone",
        "topology.kubernetes.io~1region",
        "node.kubernetes.io~1instance-type",
    ] {
        operations.extend(replace(&format!("/metadata/labels/{label}"), Value::Null, json!("value")));
    }
    let taints = node.spec.as_ref().map(|spec| json!(spec.taints)).unwrap_or_default();
    operations.extend([test("/spec/taints", taints), json!({ "op": "remove", "path": "/spec/taints" })]);
    let patch = Patch::<Node>::Json(serde_json::from_value(Value::Array(operations))?);
    api.patch_metadata(&name, &PatchParams::default(), &patch).await?;
    Ok(())
}

fn test(path: &str, value: Value) -> Value {
    json!({ "op": "test", "path": path, "value": value })
}

fn replace(path: &str, old: Value, new: Value) -> [Value; 2] {
    [test(path, old), json!({ "op": "add", "path": path, "value": new })]
}
