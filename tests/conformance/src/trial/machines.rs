//! Instances that hooks create, stop, start and terminate, and queries about them.

use std::net::IpAddr;

use cloudprovider_proto::v1alpha1::{
    BatchGetInstancesRequest, ClusterRef, Instance, InstanceQuery, InstanceResult, InstanceState,
    NodeAddress, NodeAddressType, NodeFields, NodeRef,
};
use serde_json::Value;

use super::{Trial, expect, good, single, steer::first};
use crate::{
    case::{Outcome, Stop},
    scenario::Variables,
};

/// An instance that a hook created.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// The name of its node.
    pub(crate) name: String,
    pub(crate) provider_id: String,
    system_uuid: String,
    addresses: Vec<String>,
}

impl Machine {
    /// An instance as a hook printed it; its node has this name unless it prints another.
    fn made(hook: &str, printed: &Value, name: String) -> Result<Self, Stop> {
        let provider_id = text(printed, "provider_id");
        if provider_id.is_empty() {
            return Err(Stop::NotRun(format!("hook {hook} printed no provider_id: {printed}")));
        }
        let named = text(printed, "name");
        let name = if named.is_empty() { name } else { named };
        let (system_uuid, addresses) = (text(printed, "system_uuid"), addresses(printed));
        Ok(Self { name, provider_id, system_uuid, addresses })
    }

    fn variables(&self) -> Variables {
        Variables::new().with("NAME", &self.name).with("PROVIDER_ID", &self.provider_id)
    }

    /// The node as registered: without a provider ID.
    pub(crate) fn new_node(&self) -> NodeRef {
        let address =
            |text: &String| NodeAddress { r#type: NodeAddressType::InternalIp.into(), address: text.clone() };
        NodeRef {
            name: self.name.clone(),
            uid: format!("uid-of-{}", self.name),
            system_uuid: self.system_uuid.clone(),
            addresses: self.addresses.iter().map(address).collect(),
            ..NodeRef::default()
        }
    }

    /// The node with its provider ID.
    pub(crate) fn node(&self) -> NodeRef {
        NodeRef { provider_id: self.provider_id.clone(), ..self.new_node() }
    }
}

/// Where the cloud told addresses of the node's instance, its description has some of them, too.
pub(crate) fn has_addresses(node: &NodeRef, instance: &Instance) -> Outcome {
    let told: Vec<_> = node.addresses.iter().map(|one| &one.address).collect();
    let has = told.is_empty() || instance.addresses.iter().any(|one| told.contains(&&one.address));
    expect(has, format!("addresses, of which the cloud has {told:?}"), instance)
}

/// The node as a host sends it: a field that the provider does not want there is empty.
pub(super) fn as_wanted(node: NodeRef, fields: Option<&NodeFields>) -> NodeRef {
    let (uuid, addresses) = fields.map_or((false, false), |fields| (fields.system_uuid, fields.addresses));
    NodeRef {
        system_uuid: if uuid { node.system_uuid } else { String::new() },
        addresses: if addresses { node.addresses } else { Vec::new() },
        ..node
    }
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The IP addresses, each a text or in an object.
fn addresses(value: &Value) -> Vec<String> {
    let listed = value.get("addresses").and_then(Value::as_array).into_iter().flatten();
    let text = |one: &Value| one.get("address").unwrap_or(one).as_str().map(str::to_owned);
    listed.filter_map(text).filter(|text| text.parse::<IpAddr>().is_ok()).collect()
}

impl Trial {
    /// A running instance, perhaps one that an earlier case left. The case leaves it as it is.
    pub(crate) async fn machine(&self) -> Result<Machine, Stop> {
        if let Some(machine) = self.session.machines.borrow_mut().take() {
            return Ok(machine);
        }
        let (numbers, machine) = self.make(self.name(), self.cluster().unwrap_or_default()).await?;
        self.session.machines.borrow_mut().add(numbers, machine.clone());
        Ok(machine)
    }

    /// A running instance of the case's own, which is terminated when the case ends.
    pub(crate) async fn own_machine(&self) -> Result<Machine, Stop> {
        self.machine_named(self.name()).await
    }

    /// A running instance for a node of this name, unless the hook prints another.
    pub(crate) async fn machine_named(&self, name: String) -> Result<Machine, Stop> {
        self.machine_of(name, self.cluster().unwrap_or_default()).await
    }

    /// The same for a node of another cluster.
    pub(crate) async fn machine_of(&self, name: String, cluster: ClusterRef) -> Result<Machine, Stop> {
        self.make(name, cluster).await.map(|(_, machine)| machine)
    }

    /// Makes an instance. Returns also its numbers in the ledger.
    async fn make(&self, name: String, cluster: ClusterRef) -> Result<(Vec<u64>, Machine), Stop> {
        let nameless = Variables::new().with("NAME", &name).with("PROVIDER_ID", "");
        let unknown = self.register_hook("terminate-instance", nameless)?;
        let asked = Variables::new()
            .with("NAME", &name)
            .with("CLUSTER_UID", cluster.uid)
            .with("CLUSTER_NAME", cluster.name);
        let machine =
            Machine::made("create-instance", &first(self.hook("create-instance", &asked).await?), name)?;
        self.session.meter.instance();
        let known = self.register_hook("terminate-instance", machine.variables())?;
        Ok((vec![unknown, known], machine))
    }

    /// A node that no cloud ever had.
    pub(crate) fn stranger(&self) -> NodeRef {
        NodeRef { name: self.name(), uid: self.uid(), ..NodeRef::default() }
    }

    /// Several instances, as by `machine`.
    pub(crate) async fn machines(&self, count: usize) -> Result<Vec<Machine>, Stop> {
        let mut all = Vec::new();
        for _number in 0..count {
            all.push(self.machine().await?);
        }
        Ok(all)
    }

    /// Several instances of the case's own.
    pub(crate) async fn own_machines(&self, count: usize) -> Result<Vec<Machine>, Stop> {
        let mut made = Vec::new();
        for _number in 0..count {
            made.push(self.own_machine().await?);
        }
        Ok(made)
    }

    /// Very many instances by one hook; returns their nodes.
    pub(crate) async fn machines_at_once(&self, count: usize) -> Result<Vec<NodeRef>, Stop> {
        let (hook, name, cluster) = ("create-instances", self.name(), self.cluster().unwrap_or_default());
        let told = Variables::new().with("NAME", &name).with("COUNT", count.to_string());
        self.register_hook("terminate-instances", told.clone())?;
        let asked = told.with("CLUSTER_UID", cluster.uid).with("CLUSTER_NAME", cluster.name);
        let printed = self.hook(hook, &asked).await?;
        let made = printed.as_array().map(Vec::as_slice).unwrap_or_default();
        if made.len() != count {
            return Err(Stop::NotRun(format!("hook {hook} made {} instances, not {count}", made.len())));
        }
        let node = |(at, one): (usize, &Value)| Machine::made(hook, one, format!("{name}-{at}"));
        made.iter().enumerate().map(|one| node(one).map(|machine| machine.node())).collect()
    }

    /// Runs a hook for one instance: `stop-instance`, `start-instance`, `terminate-instance`, `cut-location`.
    pub(crate) async fn steer_machine(&self, hook: &str, machine: &Machine) -> Outcome {
        self.steer(hook, machine.variables()).await.map(drop)
    }

    /// A batch about these nodes, each with its position as key.
    pub(crate) fn batch(&self, nodes: Vec<NodeRef>) -> BatchGetInstancesRequest {
        let wanted = self.provider().wants().identity;
        let query = |(at, node): (usize, NodeRef)| InstanceQuery {
            key: format!("k{at}"),
            node: Some(as_wanted(node, wanted.as_ref())),
        };
        BatchGetInstancesRequest {
            cluster: self.cluster(),
            queries: nodes.into_iter().enumerate().map(query).collect(),
            // Current states: other cases test caches.
            max_staleness: Some(prost_types::Duration::default()),
            ..BatchGetInstancesRequest::default()
        }
    }

    /// The result for one node.
    pub(crate) async fn look(&self, node: NodeRef) -> Result<InstanceResult, Stop> {
        let name = node.name.clone();
        let answer = self.instances().batch_get_instances(self.ask(self.batch(vec![node]))).await;
        single(format!("one result for node {name}"), good("BatchGetInstances", answer)?.results)
    }

    /// Waits until a node's instance is in one of these states.
    pub(crate) async fn look_until(
        &self,
        node: &NodeRef,
        states: &[InstanceState],
    ) -> Result<InstanceResult, Stop> {
        self.eventually(&format!("node {}: state {states:?}", node.name), async || {
            let result = self.look(node.clone()).await?;
            let there = states.contains(&result.state());
            Ok(if there { Ok(result) } else { Err(format!("{result:?}")) })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(addresses: Value) -> NodeRef {
        let printed = serde_json::json!({"provider_id": "a://1", "system_uuid": "u", "addresses": addresses});
        Machine::made("h", &printed, "n".to_owned()).unwrap().node()
    }

    #[test]
    fn a_description_without_the_addresses_that_the_cloud_told_is_seen() {
        let node = made(serde_json::json!(["192.0.2.1", "n.example"]));
        assert_eq!(made(serde_json::json!([{"type": "InternalIP", "address": "192.0.2.1"}])), node);
        let described = |of: &NodeRef| Instance { addresses: of.addresses.clone(), ..Instance::default() };
        assert_eq!(has_addresses(&node, &described(&node)), Ok(()));
        for other in [made(serde_json::json!(["192.0.2.2"])), NodeRef::default()] {
            assert!(has_addresses(&node, &described(&other)).is_err());
        }
        assert_eq!(has_addresses(&NodeRef::default(), &Instance::default()), Ok(()));
    }

    #[test]
    fn a_field_that_the_provider_does_not_want_is_not_sent() {
        let node = made(serde_json::json!(["192.0.2.1"]));
        let both = NodeFields { system_uuid: true, addresses: true, ..NodeFields::default() };
        assert_eq!(as_wanted(node.clone(), Some(&both)), node);
        let bare = NodeRef { system_uuid: String::new(), addresses: Vec::new(), ..node.clone() };
        assert_eq!(as_wanted(node.clone(), Some(&NodeFields::default())), bare);
        assert_eq!(as_wanted(node, None), bare);
    }
}
