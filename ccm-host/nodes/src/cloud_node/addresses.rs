//! Computes the addresses for a node's status.
//!
//! In: the node, the cloud's list. Out: the complete list that replaces the present one, or `None` to leave it alone.
//! The patch compares the two, entry by entry and in order. The node IPs that a kubelet was told to use (`--node-ip`)
//! restrict the cloud's list, and order it.

use std::net::IpAddr;

use ccm_base::cidr;
use ccm_kube::node::{Node, NodeAddress, PROVIDED_NODE_IP};

const HOSTNAME: &str = "Hostname";

/// The list for the status; `None` if the cloud gives no address, since that never clears anything.
///
/// The cloud's list replaces everything, including addresses of other writers. Only the kubelet's host names stay,
/// unless the cloud has its own. IPs that the kubelet was told to use must be in the cloud's list.
pub(super) fn wanted(
    node: &Node,
    cloud: &[ccm_cloud::InstanceAddress],
) -> Result<Option<Vec<NodeAddress>>, String> {
    let provided = node.annotations.get(PROVIDED_NODE_IP).map(provided_ips).transpose()?;
    let mut list: Vec<NodeAddress> = cloud.iter().map(as_written).collect();
    if let Some(provided) = &provided {
        // Check the cloud's own list first: a host name from the kubelet proves nothing about the cloud.
        select(provided, &list)?;
    }
    if list.is_empty() {
        return Ok(None);
    }
    if !list.iter().any(|address| address.type_ == HOSTNAME) {
        list.extend(node.addresses.iter().filter(|address| address.type_ == HOSTNAME).cloned());
    }
    provided.map_or(Ok(list.clone()), |provided| select(&provided, &list)).map(Some)
}

/// Whether only the order differs from the status; if the kubelet was told which IPs to use, the first address must
/// be the same, too. Some providers have no stable order, and theirs would be written at each sweep.
pub(super) fn only_reordered(node: &Node, wanted: &[NodeAddress]) -> bool {
    let present = &node.addresses;
    let first = |list: &[NodeAddress]| list.first().map(|first| first.address.clone());
    let is_same_set = present.len() == wanted.len() && wanted.iter().all(|address| present.contains(address));
    let is_led = node.annotations.get(PROVIDED_NODE_IP).is_some() && first(present) != first(wanted);
    is_same_set && !is_led && present.as_slice() != wanted
}

fn as_written(address: &ccm_cloud::InstanceAddress) -> NodeAddress {
    NodeAddress { type_: address.kind.as_str().to_owned(), address: address.address.clone() }
}

/// Parses the annotation: one IP, or two of different families, in the kubelet's order, in which the first one's family
/// is the primary. Strict: no blanks, no host names, no prefixes.
fn provided_ips(text: &str) -> Result<Vec<IpAddr>, String> {
    let ips: Option<Vec<_>> = text.split(',').map(cidr::address).collect();
    ips.filter(|ips| match ips[..] {
        [_] => true,
        [first, second] => {
            first.is_ipv4() != second.is_ipv4() && !first.is_unspecified() && !second.is_unspecified()
        }
        _ => false,
    })
    .ok_or_else(|| {
        format!(
            "annotation {PROVIDED_NODE_IP} is {text:?}, which is not one IP address, nor two of different families \
             separated by a comma"
        )
    })
}

/// The provided IPs first, in the cloud's spelling and under each type it has them; then, in the cloud's order, every
/// address of a type that none of them has. The cloud's other addresses of those types are left out.
fn select(provided: &[IpAddr], cloud: &[NodeAddress]) -> Result<Vec<NodeAddress>, String> {
    let parsed: Vec<_> = cloud.iter().map(|address| cidr::address(&address.address)).collect();
    let mut selected: Vec<NodeAddress> = Vec::with_capacity(cloud.len());
    for wanted in provided {
        let before = selected.len();
        let matching = cloud.iter().zip(&parsed).filter(|(_, ip)| ip.as_ref() == Some(wanted));
        selected.extend(matching.map(|(address, _)| address.clone()));
        if selected.len() == before {
            return Err(format!(
                "annotation {PROVIDED_NODE_IP} requests {wanted}, which is not among the node's addresses in the cloud"
            ));
        }
    }
    let pinned = selected.len();
    for address in cloud {
        if !selected.iter().take(pinned).any(|known| known.type_ == address.type_) {
            selected.push(address.clone());
        }
    }
    Ok(selected)
}

#[cfg(test)]
mod tests;
