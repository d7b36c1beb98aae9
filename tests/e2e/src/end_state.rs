//! What a history leaves behind, described independently of the cloud.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{Api, api::ListParams};
use test_cluster::{
    Cluster, Steered,
    nodes::{addresses, label},
    services::{has_finalizer, ingress},
};

/// All nodes, Services and balancers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndState {
    /// By name.
    pub nodes: BTreeMap<String, NodeState>,
    /// Those in `default` of type LoadBalancer, by name: whether they have an address, and the finalizer.
    pub services: BTreeMap<String, (bool, bool)>,
    /// The nodes behind each balancer.
    pub backends: BTreeMap<String, Vec<String>>,
}

/// One node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeState {
    /// The keys of its taints.
    pub taints: Vec<String>,
    /// Whether it has a provider ID of this provider.
    pub provider_id: bool,
    /// Its zone, from the label and its deprecated twin.
    pub zones: Vec<String>,
    /// Whether it has the instance type label.
    pub instance_type: bool,
    /// Internal addresses and host names.
    pub addresses: Vec<String>,
}

impl EndState {
    /// Reads everything.
    pub(crate) async fn of(cluster: &Cluster, provider: &str, cloud: &impl Steered) -> Result<Self> {
        let nodes = Api::<Node>::all(cluster.client.clone()).list(&ListParams::default()).await?;
        let services = Api::<Service>::namespaced(cluster.client.clone(), "default");
        let wanted = |service: &Service| {
            service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
        };
        Ok(Self {
            nodes: nodes.iter().map(|node| (name(&node.metadata.name), node_state(node, provider))).collect(),
            services: services
                .list(&ListParams::default())
                .await?
                .iter()
                .filter(|service| wanted(service))
                .map(|service| {
                    (name(&service.metadata.name), (!ingress(service).is_empty(), has_finalizer(service)))
                })
                .collect(),
            backends: cloud.backends().await?,
        })
    }
}

fn name(name: &Option<String>) -> String {
    name.clone().unwrap_or_default()
}

fn node_state(node: &Node, provider: &str) -> NodeState {
    let spec = node.spec.as_ref();
    let keys = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
    let mut found = addresses(node, "InternalIP");
    found.extend(addresses(node, "Hostname"));
    // Other controllers add and remove the taints of nodes that are not ready.
    let ours = |key: &str| key.starts_with("node.cloudprovider.kubernetes.io/");
    NodeState {
        taints: spec
            .iter()
            .flat_map(|spec| spec.taints.iter().flatten())
            .filter(|taint| ours(&taint.key))
            .map(|taint| taint.key.clone())
            .collect(),
        provider_id: spec
            .and_then(|spec| spec.provider_id.as_deref())
            .is_some_and(|id| id.starts_with(&format!("{provider}://"))),
        zones: keys.iter().filter_map(|key| label(node, key)).map(str::to_owned).collect(),
        instance_type: label(node, "node.kubernetes.io/instance-type").is_some(),
        addresses: found,
    }
}
