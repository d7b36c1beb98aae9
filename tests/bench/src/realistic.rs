//! Nodes as big as real ones: 40 images, all conditions, a dozen labels, managed fields; about 8 KB each.

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use test_cluster::nodes;

use crate::subject::Subject;

const IMAGES: usize = 40;
const IN_FLIGHT: usize = 32;

/// The name of the node with this number.
pub(crate) fn name(number: usize) -> String {
    format!("node-{number:05}")
}

/// Creates machines in the cloud and registers their nodes.
pub(crate) async fn register(subject: &Subject, count: usize) -> Result<()> {
    stream::iter(0..count)
        .map(async |number| {
            subject.create_machine(number).await?;
            nodes::register(&subject.cluster.client, node(number)).await.map(drop)
        })
        .buffer_unordered(IN_FLIGHT)
        .try_collect()
        .await
}

/// The zone of the node with this number.
pub(crate) fn zone(number: usize) -> &'static str {
    ["zone-a", "zone-b", "zone-c"][number % 3]
}

/// The node with this number as its kubelet registers it.
pub(crate) fn node(number: usize) -> Value {
    let mut node = nodes::as_registered(&name(number));
    let labels = &mut node["metadata"]["labels"];
    for key in 0..9 {
        labels[format!("example.com/label-{key}")] = json!(format!("value-{key}"));
    }
    node["metadata"]["annotations"] = json!({
        "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    });
    node["status"]["capacity"] = json!({ "cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi", "hugepages-2Mi": "0" });
    node["status"]["allocatable"] = node["status"]["capacity"].clone();
    node["status"]["conditions"] = json!([
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID"),
        condition("Ready", "True", "KubeletReady"),
    ]);
    let images: Vec<Value> = (0..IMAGES)
        .map(|image| {
            json!({
                "names": [
                    format!("images.example.com/team-{image}/app@sha256:{:064x}", image * 7919 + number),
                    format!("images.example.com/team-{image}/app:v1.{image}.0"),
                ],
                "sizeBytes": 50_000_000 + image,
            })
        })
        .collect();
    node["status"]["images"] = Value::Array(images);
    node
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": format!("the kubelet says {reason}"),
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}
