//! `--cluster-cidr` and `--service-cluster-ip-range`: at most one network per family, and how they overlap.

use ipnet::IpNet;

use super::{NodeRange, SERVICE};
use crate::cidr;
use crate::flag::{FlagError, Wrong};

/// Parses a list of networks, in order and canonical; empty if the value is.
pub(super) fn list(name: &str, value: &str, warnings: &mut Vec<String>) -> Result<Vec<IpNet>, FlagError> {
    let error = |problem: String, remedy: &str| Err(Wrong::new(problem, remedy).of(name, value));
    if value.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut networks: Vec<IpNet> = Vec::new();
    for text in value.split(',').map(str::trim) {
        let Some(given) = cidr::parse(text) else {
            return error(
                format!("{text:?} is not a network"),
                "write it like 10.244.0.0/16, or 10.244.0.0/16,fd00:10:244::/56 for both families",
            );
        };
        let network = given.trunc();
        if let Some(other) = networks.iter().find(|other| cidr::same_family(other, &network)) {
            return error(
                format!("{other} and {network} are both of {}", cidr::family(&network)),
                "give one network, or one of each family",
            );
        }
        if network != given {
            warnings.push(format!("--{name}={value}: {given} has host bits, {network} is used"));
        }
        networks.push(network);
    }
    Ok(networks)
}

/// Refuses Service ranges that leave nothing for nodes; warns of those that merely overlap.
pub(super) fn reserve(
    value: &str,
    services: &[IpNet],
    ranges: &[NodeRange],
    warnings: &mut Vec<String>,
) -> Result<(), FlagError> {
    for NodeRange { cluster, node_mask } in ranges {
        for service in services.iter().filter(|service| cidr::overlap(service, cluster)) {
            let one_block = *node_mask == cluster.prefix_len();
            if one_block || service.contains(cluster) {
                let problem = format!("{service} leaves nothing of the cluster CIDR {cluster} for nodes");
                let wrong = Wrong::new(problem, "give Services and pods networks of their own");
                return Err(wrong.of(SERVICE, value));
            }
            warnings.push(format!(
                "--{SERVICE}={value}: {service} lies in the cluster CIDR {cluster}; what belongs to Services is never \
                 given to a node"
            ));
        }
    }
    Ok(())
}
