//! Finds the instance of a node.
//!
//! By provider ID if the node has one, else by name, then system UUID, then addresses. What cannot be queried is never
//! reported as absent.

use cloudprovider_sdk::{
    ProviderError,
    proto::{NodeAddress, NodeAddressType, NodeRef},
};
use serde::{Deserialize, Serialize};

use super::{Instance, State, UnknownNodes, state::ids};

/// A node that a balancer or a route leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// Name of the node.
    pub node: String,
    /// Provider ID of its instance, as given or as found by name; empty if unknown.
    pub provider_id: String,
}

impl From<NodeRef> for Target {
    fn from(node: NodeRef) -> Self {
        Self { node: node.name, provider_id: node.provider_id }
    }
}

impl From<Target> for NodeRef {
    fn from(target: Target) -> Self {
        Self { name: target.node, provider_id: target.provider_id, ..Self::default() }
    }
}

/// What the cloud knows about a node.
#[derive(Debug)]
pub enum Found<'a> {
    /// This instance.
    Instance(&'a Instance),
    /// It does not exist.
    Absent,
    /// It belongs to another owner.
    NotOwned,
    /// It is unknown.
    Unknown(ProviderError),
}

impl State {
    /// Finds the instance of one node, as part of another operation.
    pub fn find_node(&self, cluster_uid: &str, query: &NodeRef) -> Found<'_> {
        let found = if query.provider_id.is_empty() { self.by_properties(query) } else { self.by_id(query) };
        match found {
            Found::Instance(machine)
                if !machine.cluster_uid.is_empty() && machine.cluster_uid != cluster_uid =>
            {
                Found::NotOwned
            }
            Found::Instance(machine) if self.conditions.unreachable_zones.contains(&machine.zone) => {
                Found::Unknown(ProviderError::location_unreachable(&machine.zone))
            }
            other => other,
        }
    }

    fn by_id(&self, query: &NodeRef) -> Found<'_> {
        let prefix = self.settings.provider_id_prefix();
        let path = query.provider_id.strip_prefix(&prefix).filter(|path| !path.is_empty());
        let Some(path) = path else { return Found::NotOwned };
        if let Some(machine) = self.by_provider_id(&query.provider_id) {
            return Found::Instance(machine);
        }
        let zone = path.split('/').next().unwrap_or_default();
        if self.conditions.unreachable_zones.contains(zone) {
            return Found::Unknown(ProviderError::location_unreachable(zone));
        }
        Found::Absent
    }

    /// The instance with this provider ID, whose last part is the cloud's id.
    pub(super) fn by_provider_id(&self, provider_id: &str) -> Option<&Instance> {
        let (_, id) = provider_id.rsplit_once('/')?;
        self.instances.get(id).filter(|machine| machine.provider_id == provider_id)
    }

    /// The instances of this name, the oldest first.
    pub(super) fn named(&self, name: &str) -> impl Iterator<Item = &Instance> {
        ids(&self.indexes.by_name, name.to_owned()).filter_map(|id| self.instances.get(id))
    }

    fn by_properties(&self, query: &NodeRef) -> Found<'_> {
        let mut named = self.named(&query.name);
        match (named.next(), named.next()) {
            (Some(machine), None) => return Found::Instance(machine),
            (Some(_), Some(_another)) => {
                return Found::Unknown(ProviderError::instance_ambiguous(&query.name));
            }
            (None, _) => {}
        }
        let has_uuid = |machine: &&Instance| machine.system_uuid.eq_ignore_ascii_case(&query.system_uuid);
        match self.instances.values().rfind(has_uuid).filter(|_| !query.system_uuid.is_empty()) {
            Some(newest) => Found::Instance(newest),
            None => self.by_addresses(query),
        }
    }

    fn by_addresses(&self, query: &NodeRef) -> Found<'_> {
        let is_ip = |address: &&NodeAddress| {
            matches!(address.r#type(), NodeAddressType::InternalIp | NodeAddressType::ExternalIp)
        };
        let mut ips: Vec<_> = query.addresses.iter().filter(is_ip).map(|address| &address.address).collect();
        ips.extend(&query.provided_node_ips);
        let holds = |machine: &&Instance| machine.addresses.iter().any(|one| ips.contains(&&one.address));
        let matches: Vec<_> = self.instances.values().filter(|_| !ips.is_empty()).filter(holds).collect();
        match matches.as_slice() {
            [machine] => Found::Instance(machine),
            [] => self.never_known(),
            _several => Found::Unknown(ProviderError::instance_ambiguous(&query.name)),
        }
    }

    fn never_known(&self) -> Found<'_> {
        if let Some(zone) = self.conditions.unreachable_zones.first() {
            return Found::Unknown(ProviderError::location_unreachable(zone));
        }
        match self.settings.unknown_nodes {
            UnknownNodes::Absent => Found::Absent,
            UnknownNodes::NotOwned => Found::NotOwned,
        }
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider_sdk::proto::ErrorReason;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::cloud::{NewInstances, Settings};

    fn cloud() -> State {
        let mut cloud = State::new(Settings::default());
        for name in ["a", "b", "twin", "twin"] {
            let wish = NewInstances { allow_duplicate_name: true, ..NewInstances::named(name) };
            cloud.create_instances(&wish, Timestamp::UNIX_EPOCH).unwrap();
        }
        let foreign = NewInstances { cluster_uid: Some("other".into()), ..NewInstances::named("foreign") };
        cloud.create_instances(&foreign, Timestamp::UNIX_EPOCH).unwrap();
        cloud
    }

    fn node(name: &str, provider_id: &str) -> NodeRef {
        NodeRef { name: name.into(), provider_id: provider_id.into(), ..NodeRef::default() }
    }

    fn said(cloud: &State, query: &NodeRef) -> String {
        match cloud.find_node("c1", query) {
            Found::Instance(machine) => machine.name.clone(),
            Found::Absent => "ABSENT".into(),
            Found::NotOwned => "NOT_OWNED".into(),
            Found::Unknown(error) => error.message().to_owned(),
        }
    }

    #[test]
    fn nodes_are_found_by_what_is_most_certain() {
        let cloud = cloud();
        let uuid = NodeRef { system_uuid: "00000000-0000-4000-8000-000000000002".into(), ..node("x", "") };
        let ip = NodeRef { provided_node_ips: vec!["10.64.0.1".into()], ..node("x", "") };
        let cases = [
            ("provider ID", node("a", "mock://mock-1a/i-00000001"), "a"),
            ("R:node-by-provider-id", node("b", "mock://mock-1a/i-00000001"), "a"),
            ("R:node-by-provider-id, gone", node("b", "mock://mock-1a/i-99"), "ABSENT"),
            ("foreign prefix", node("a", "aws:///eu/i-1"), "NOT_OWNED"),
            ("no more than the prefix", node("a", "mock://"), "NOT_OWNED"),
            ("name", node("b", ""), "b"),
            ("system uuid", uuid, "b"),
            ("address", ip, "a"),
            ("never known", node("x", ""), "ABSENT"),
            ("doubled name", node("twin", ""), "node \"twin\" is claimed by more than one instance"),
            ("another cluster's", node("foreign", ""), "NOT_OWNED"),
        ];
        for (name, query, wanted) in cases {
            assert_eq!(said(&cloud, &query), wanted, "{name}");
        }
    }

    #[test]
    fn nodes_never_known_are_another_clouds_when_told_so() {
        let settings = Settings { unknown_nodes: UnknownNodes::NotOwned, ..Settings::default() };
        let cloud = State::new(settings);
        assert_eq!(said(&cloud, &node("x", "")), "NOT_OWNED");
        assert_eq!(said(&cloud, &node("x", "mock://z/i-1")), "ABSENT");
    }

    #[test]
    fn what_cannot_be_asked_is_never_absent() {
        let mut cloud = cloud();
        cloud.patch_conditions(&json!({"unreachable_zones": ["mock-1a"]})).unwrap();
        for query in [node("a", ""), node("x", ""), node("x", "mock://mock-1a/i-99")] {
            assert_eq!(said(&cloud, &query), "location \"mock-1a\" could not be queried", "{query:?}");
        }
        assert_eq!(said(&cloud, &node("x", "mock://mock-1b/i-99")), "ABSENT");
    }

    #[test]
    fn missing_rights_win_over_absence() {
        let mut cloud = cloud();
        cloud.patch_conditions(&json!({"denied_actions": ["instances:read"]})).unwrap();
        let refused = |cloud: &State| cloud.enter("instances:read").unwrap_err().reason();
        assert_eq!(refused(&cloud), ErrorReason::CloudPermissionDenied);
        cloud.patch_conditions(&json!({"credentials": "expired"})).unwrap();
        assert_eq!(refused(&cloud), ErrorReason::CloudCredentialsExpired);
        assert_eq!(cloud.calls.lock().get("instances:read"), Some(&2));
    }
}
