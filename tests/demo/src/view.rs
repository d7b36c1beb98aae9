//! The current state of the cluster: read from the apiserver and the mock cloud, shown as two tables.

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{Api, api::ListParams};
use test_cluster::{Cluster, cloud, nodes, services};

use crate::table;

/// One view of the cluster.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct View {
    pub(crate) nodes: Vec<Node>,
    pub(crate) services: Vec<Service>,
    /// The name of a Service and the nodes behind its balancer.
    pub(crate) backends: Vec<(String, Vec<String>)>,
}

impl View {
    /// Reads the state once.
    pub(crate) async fn look(cluster: &Cluster) -> Result<Self> {
        let everything = ListParams::default();
        let nodes = Api::<Node>::all(cluster.client.clone()).list(&everything).await?.items;
        let services =
            Api::<Service>::namespaced(cluster.client.clone(), "default").list(&everything).await?.items;
        let services = services.into_iter().filter(|service| type_of(service) == "LoadBalancer").collect();
        // The provider may still be starting: the table then shows no backends.
        let backends = match cluster.cloud() {
            Ok(cloud) => cloud.balancers().await.unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        let backends =
            backends.iter().map(|found| (found.service_name.clone(), cloud::backend_names(found))).collect();
        Ok(Self { nodes, services, backends })
    }

    /// The nodes behind the balancer of a Service.
    pub(crate) fn backends_of(&self, service: &str) -> &[String] {
        self.backends.iter().find(|(name, _)| name == service).map_or(&[], |(_, nodes)| nodes)
    }

    pub(crate) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name))
    }

    pub(crate) fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.metadata.name.as_deref() == Some(name))
    }

    /// Both tables.
    pub(crate) fn lines(&self) -> Vec<String> {
        let nodes: Vec<Vec<String>> = self.nodes.iter().map(node_row).collect();
        let mut lines = table::lines(
            &["NODE", "READY", "TAINT", "PROVIDER ID", "INTERNAL IP", "EXTERNAL IP", "ZONE"],
            &nodes,
        );
        if !self.services.is_empty() {
            let services: Vec<Vec<String>> =
                self.services.iter().map(|service| self.service_row(service)).collect();
            lines.push(String::new());
            lines.extend(table::lines(&["SERVICE", "ADDRESS", "BACKENDS"], &services));
        }
        lines
    }

    fn service_row(&self, service: &Service) -> Vec<String> {
        let name = service.metadata.name.clone().unwrap_or_default();
        let backends = self.backends_of(&name).join(", ");
        vec![name, dash(&services::ingress(service).join(", ")), dash(&backends)]
    }
}

fn type_of(service: &Service) -> &str {
    service.spec.as_ref().and_then(|spec| spec.type_.as_deref()).unwrap_or_default()
}

fn node_row(node: &Node) -> Vec<String> {
    let spec = node.spec.clone().unwrap_or_default();
    let taints: Vec<String> = spec
        .taints
        .unwrap_or_default()
        .iter()
        // Others belong to the kube-controller-manager's node lifecycle controller, which does not run here.
        .filter_map(|taint| taint.key.strip_prefix("node.cloudprovider.kubernetes.io/").map(str::to_owned))
        .collect();
    vec![
        node.metadata.name.clone().unwrap_or_default(),
        ready(node),
        dash(&taints.join(", ")),
        dash(&spec.provider_id.unwrap_or_default()),
        dash(&nodes::addresses(node, "InternalIP").join(", ")),
        dash(&nodes::addresses(node, "ExternalIP").join(", ")),
        dash(nodes::label(node, "topology.kubernetes.io/zone").unwrap_or_default()),
    ]
}

fn ready(node: &Node) -> String {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    ready.map_or_else(|| "-".to_owned(), |condition| condition.status)
}

fn dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}
