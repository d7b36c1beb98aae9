//! An instance of EC2 as the contract has it: state, addresses, labels.
//!
//! In: EC2's answer, the IDs of zones, the place in the network. Out: the contract's instance. The order of addresses and the
//! names of labels are the published provider's, so that a cluster that changes over keeps them.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use aws_sdk_ec2::types::{Instance, InstanceNetworkInterface, InstanceStateName, NetworkInterfaceStatus};
use cloudprovider_sdk::proto::{self, InstanceState, NodeAddress, NodeAddressType};
use cloudprovider_sdk::{ProviderError, Result};

use super::PREFIX;
use crate::config::Family;

/// Of the zone's ID.
const ZONE_LABEL: &str = "topology.k8s.aws/zone-id";
/// Followed by 1 for the layer at the top, 2, 3.
const LAYER_LABEL: &str = "topology.k8s.aws/network-node-layer-";
/// How soon to look again at an instance of which EC2 does not know everything yet.
const NOT_YET: Duration = Duration::from_secs(5);

/// `None`: it has no state, or one that is not known here.
pub(super) fn state_of(instance: &Instance) -> Option<InstanceState> {
    Some(match instance.state()?.name()? {
        InstanceStateName::Pending => InstanceState::Pending,
        InstanceStateName::Running => InstanceState::Running,
        InstanceStateName::Stopping | InstanceStateName::Stopped => InstanceState::Stopped,
        InstanceStateName::ShuttingDown => InstanceState::Terminating,
        InstanceStateName::Terminated => InstanceState::Absent,
        _ => return None,
    })
}

/// `aws:///ZONE/ID`.
pub(crate) fn provider_id(instance: &Instance) -> String {
    format!("{PREFIX}/{}/{}", zone(instance), instance.instance_id().unwrap_or_default())
}

pub(super) fn zone(instance: &Instance) -> &str {
    instance.placement().and_then(|place| place.availability_zone()).unwrap_or_default()
}

/// Without labels, which take other calls.
pub(super) fn describe(instance: &Instance, region: &str, families: &[Family]) -> Result<proto::Instance> {
    let addresses = addresses(instance, families);
    if zone(instance).is_empty() || addresses.is_empty() {
        return Err(ProviderError::metadata_not_ready(NOT_YET));
    }
    Ok(proto::Instance {
        provider_id: provider_id(instance),
        name: instance.private_dns_name().unwrap_or_default().to_owned(),
        instance_type: instance.instance_type().map(|kind| kind.as_str().to_owned()).unwrap_or_default(),
        addresses,
        zone: zone(instance).to_owned(),
        region: region.to_owned(),
        ..proto::Instance::default()
    })
}

/// The labels of an instance: its zone's ID, and its layers from the top of the network.
pub(super) fn labels(
    instance: &Instance,
    zones: &HashMap<String, String>,
    layers: &[String],
) -> Result<HashMap<String, String>> {
    let id = zones.get(zone(instance)).ok_or_else(|| ProviderError::metadata_not_ready(NOT_YET))?;
    let layers = layers
        .iter()
        .enumerate()
        .map(|(above, layer)| (format!("{LAYER_LABEL}{}", above + 1), layer.clone()));
    Ok([(ZONE_LABEL.to_owned(), id.clone())].into_iter().chain(layers).collect())
}

fn addresses(instance: &Instance, families: &[Family]) -> Vec<NodeAddress> {
    let mut interfaces: Vec<_> = instance.network_interfaces().iter().collect();
    // What is not attached comes last.
    interfaces
        .sort_by_key(|one| one.attachment().map_or(i32::MAX, |at| at.device_index().unwrap_or_default()));
    interfaces.retain(|one| one.status() == Some(&NetworkInterfaceStatus::InUse));
    let mut all = Vec::new();
    for family in families {
        match family {
            Family::V4 => v4(instance, &interfaces, &mut all),
            Family::V6 => v6(&interfaces, &mut all),
        }
    }
    let mut seen = HashSet::new();
    all.retain(|one| seen.insert((one.r#type, one.address.clone())));
    all
}

fn v4(instance: &Instance, interfaces: &[&InstanceNetworkInterface], all: &mut Vec<NodeAddress>) {
    use NodeAddressType::{ExternalDns, ExternalIp, Hostname, InternalDns, InternalIp};
    for private in interfaces.iter().flat_map(|one| one.private_ip_addresses()) {
        all.extend(ip(InternalIp, private.private_ip_address()));
    }
    all.extend(ip(ExternalIp, instance.public_ip_address()));
    for (r#type, dns) in [
        (InternalDns, instance.private_dns_name()),
        (Hostname, instance.private_dns_name()),
        (ExternalDns, instance.public_dns_name()),
    ] {
        let dns = dns.filter(|dns| !dns.is_empty());
        all.extend(dns.map(|dns| NodeAddress { r#type: r#type.into(), address: dns.to_owned() }));
    }
}

/// The first of each interface. AWS gives such addresses no names, and all of them are reachable from within.
fn v6(interfaces: &[&InstanceNetworkInterface], all: &mut Vec<NodeAddress>) {
    for one in interfaces {
        all.extend(ip(
            NodeAddressType::InternalIp,
            one.ipv6_addresses().first().and_then(|first| first.ipv6_address()),
        ));
    }
}

fn ip(r#type: NodeAddressType, address: Option<&str>) -> Option<NodeAddress> {
    let address: IpAddr = address?.parse().ok()?;
    Some(NodeAddress { r#type: r#type.into(), address: address.to_string() })
}

#[cfg(test)]
mod tests;
