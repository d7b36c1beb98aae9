//! What a provider reports about its cloud, in rows: the messages of the contract without what only controllers need.

use cloudprovider_proto::v1alpha1 as pb;
use serde::{Deserialize, Serialize};

/// What can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Instances,
    LoadBalancers,
    Routes,
    /// The labels of named volumes: the contract cannot list volumes.
    Volumes,
    Clusters,
}

/// A list, at `/state/providers/NAME/KIND`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// `Inventory`.
    pub kind: String,
    pub provider: String,
    /// Locations that the provider could not list, and why.
    pub unreachable: Vec<String>,
    pub items: Items,
}

/// The rows of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Items {
    Instances(Vec<Instance>),
    LoadBalancers(Vec<LoadBalancer>),
    Routes(Vec<Route>),
    Volumes(Vec<Volume>),
    Clusters(Vec<Cluster>),
}

/// An instance. States are the contract's, without the prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    pub provider_id: String,
    pub name: String,
    pub node: String,
    pub state: String,
    pub instance_type: String,
    pub zone: String,
    pub region: String,
    pub addresses: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancer {
    pub id: String,
    pub name: String,
    /// `namespace/name` of its Service.
    pub service: String,
    pub state: String,
    pub addresses: Vec<String>,
    pub ownership: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    pub id: String,
    pub destination: String,
    /// The node's name, else its provider ID; empty if unknown.
    pub target: String,
    pub state: String,
}

/// The answer about one volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    pub id: String,
    pub state: String,
    /// `key=value`.
    pub labels: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    pub name: String,
    /// `host:port` of its control plane; absent in a list of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
}

/// The port of an endpoint that names none.
const USUAL_PORT: i32 = 443;

impl Kind {
    pub const ALL: [Self; 5] =
        [Self::Instances, Self::LoadBalancers, Self::Routes, Self::Volumes, Self::Clusters];

    /// Its name in a path.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Instances => "instances",
            Self::LoadBalancers => "load-balancers",
            Self::Routes => "routes",
            Self::Volumes => "volumes",
            Self::Clusters => "clusters",
        }
    }

    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl Inventory {
    #[must_use]
    pub fn new(provider: &str, items: Items, unreachable: Vec<String>) -> Self {
        Self {
            api_version: crate::API_VERSION.to_owned(),
            kind: "Inventory".to_owned(),
            provider: provider.to_owned(),
            unreachable,
            items,
        }
    }
}

impl From<pb::ListedInstance> for Instance {
    fn from(listed: pb::ListedInstance) -> Self {
        let state = plain(listed.state().as_str_name(), "INSTANCE_STATE_");
        let instance = listed.instance.unwrap_or_default();
        Self {
            provider_id: instance.provider_id,
            name: instance.name,
            node: listed.node_name,
            state,
            instance_type: instance.instance_type,
            zone: instance.zone,
            region: instance.region,
            addresses: instance.addresses.into_iter().map(|address| address.address).collect(),
        }
    }
}

impl From<pb::LoadBalancer> for LoadBalancer {
    fn from(given: pb::LoadBalancer) -> Self {
        let state = plain(given.state().as_str_name(), "LOAD_BALANCER_STATE_");
        let ownership = plain(given.ownership().as_str_name(), "OWNERSHIP_");
        let service = given.service.unwrap_or_default();
        let address = |entry: pb::LoadBalancerIngress| match entry.ip.is_empty() {
            true => entry.hostname,
            false => entry.ip,
        };
        Self {
            id: given.id,
            name: given.name,
            service: format!("{}/{}", service.namespace, service.name),
            state,
            addresses: given.ingress.into_iter().map(address).collect(),
            ownership,
        }
    }
}

impl From<pb::Route> for Route {
    fn from(given: pb::Route) -> Self {
        let state = plain(given.state().as_str_name(), "ROUTE_STATE_");
        let target = given.target.unwrap_or_default();
        let target = if target.name.is_empty() { target.provider_id } else { target.name };
        Self { id: given.id, destination: given.destination_cidr, target, state }
    }
}

impl From<pb::VolumeResult> for Volume {
    fn from(given: pb::VolumeResult) -> Self {
        let state = plain(given.state().as_str_name(), "VOLUME_STATE_");
        let mut labels: Vec<_> = given.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        labels.sort();
        Self {
            id: given.key,
            state,
            labels,
            error: given.error.map(|error| error.message).unwrap_or_default(),
        }
    }
}

impl Cluster {
    /// A cluster whose endpoint was asked for.
    #[must_use]
    pub fn at(name: &str, endpoint: &pb::GetControlPlaneEndpointResponse) -> Self {
        let port = if endpoint.port == 0 { USUAL_PORT } else { endpoint.port };
        let host = match endpoint.host.contains(':') {
            true => format!("[{}]", endpoint.host),
            false => endpoint.host.clone(),
        };
        Self { name: name.to_owned(), endpoint: Some(format!("{host}:{port}")) }
    }
}

/// Volumes of one plugin, as queries; the key of each is its ID.
#[must_use]
pub fn volume_queries(plugin: &str, ids: &[String]) -> Vec<pb::VolumeQuery> {
    let query = |id: &String| pb::VolumeQuery {
        key: id.clone(),
        name: id.clone(),
        plugin: plugin.to_owned(),
        volume_id: id.clone(),
        ..pb::VolumeQuery::default()
    };
    ids.iter().map(query).collect()
}

/// An enum value without its type's prefix; `UNKNOWN` for the zero value.
fn plain(name: &str, prefix: &str) -> String {
    match name.strip_prefix(prefix).unwrap_or(name) {
        "UNSPECIFIED" => "UNKNOWN".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_lose_their_prefix() {
        let rows = [
            (pb::InstanceState::Running, "RUNNING"),
            (pb::InstanceState::Unspecified, "UNKNOWN"),
            (pb::InstanceState::NotOwned, "NOT_OWNED"),
        ];
        for (state, want) in rows {
            let listed = pb::ListedInstance { state: state.into(), ..pb::ListedInstance::default() };
            assert_eq!(Instance::from(listed).state, want);
        }
    }

    #[test]
    fn an_endpoint_has_a_port_and_brackets() {
        let at = |host: &str, port| {
            let host = host.to_owned();
            Cluster::at("c", &pb::GetControlPlaneEndpointResponse { host, port }).endpoint
        };
        assert_eq!(at("api.example", 0).as_deref(), Some("api.example:443"));
        assert_eq!(at("fd00::1", 6443).as_deref(), Some("[fd00::1]:6443"));
    }
}
