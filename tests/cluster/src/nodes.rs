//! Nodes as a kubelet with `--cloud-provider=external` registers them.

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// The taint that a kubelet puts on a node that no cloud controller has initialised yet.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// A node as registered: tainted, with its host name as the only address, not ready.
pub fn as_registered(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
        },
        "spec": { "taints": [{ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" }] },
        "status": {
            "addresses": [{ "type": "Hostname", "address": name }],
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "6.1", "osImage": "linux",
                "containerRuntimeVersion": "containerd://2", "kubeletVersion": "v1.37.2", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    })
}

/// Registers a node. The create includes its `status`, as the kubelet's does.
pub async fn register(client: &Client, node: Value) -> Result<Node> {
    let node: Node = serde_json::from_value(node)?;
    Ok(Api::all(client.clone()).create(&PostParams::default(), &node).await?)
}

/// Sets whether a node is ready (`"True"`), not ready (`"False"`), or `"Unknown"`.
pub async fn set_ready(client: &Client, name: &str, status: &str) -> Result<()> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let body = json!({ "status": { "conditions": [{
        "type": "Ready", "status": status, "reason": "Test", "message": "set by the test",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }]}});
    Api::<Node>::all(client.clone())
        .patch_status(name, &PatchParams::default(), &Patch::Strategic(body))
        .await?;
    Ok(())
}

/// Whether the node is not initialised yet.
pub fn is_uninitialized(node: &Node) -> bool {
    has_taint(node, UNINITIALIZED)
}

/// Whether the node has a taint with this key.
pub fn has_taint(node: &Node, key: &str) -> bool {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == key)
}

/// The addresses of one type, in order.
pub fn addresses(node: &Node, kind: &str) -> Vec<String> {
    node.status
        .iter()
        .flat_map(|status| status.addresses.iter().flatten())
        .filter(|address| address.type_ == kind)
        .map(|address| address.address.clone())
        .collect()
}

/// The value of a label.
pub fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}
