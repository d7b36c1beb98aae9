//! Which addresses belong to pods and to Services, and who gives each node its part.
//!
//! In: the flags of upstream's node-ipam and route controllers. Out: [`CidrSettings`], in which nothing contradicts
//! anything: at most one network a family, canonical, each with a node mask that fits it. What is wrong in itself is
//! refused always; what only stands in the way of an allocation, only when nodes are to be given CIDRs.

mod masks;
mod networks;
#[cfg(test)]
mod tests;

use ipnet::IpNet;

use super::error::{FlagError, Mistakes};
use super::value;
use masks::RawMasks;

const CLUSTER: &str = "cluster-cidr";
const SERVICE: &str = "service-cluster-ip-range";

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Pod networks")]
pub(super) struct RawCidrs {
    /// Networks of the pods: one, or one of each family, comma separated. Needed to give CIDRs to nodes and to
    /// configure routes.
    #[arg(long, value_name = "LIST", default_value = "")]
    pub cluster_cidr: String,

    /// Networks of the Services: one, or one of each family, comma separated. No node is given any of it.
    #[arg(long, value_name = "LIST", default_value = "")]
    pub service_cluster_ip_range: String,

    /// Give each node its pod CIDRs; without it, or without nodeipam in --controllers, the node-ipam controller does
    /// not start.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    pub allocate_node_cidrs: String,

    /// Where pod CIDRs come from: RangeAllocator divides --cluster-cidr, CloudAllocator writes what the provider says.
    #[arg(long, value_name = "NAME", default_value = "RangeAllocator")]
    pub cidr_allocator_type: String,

    #[command(flatten)]
    masks: RawMasks,
}

/// Which addresses belong to pods and to Services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CidrSettings {
    /// `--cluster-cidr`: none, one, or one of each family, in the order given.
    pub cluster: Vec<IpNet>,
    /// Where nodes get their pod CIDRs from; none: they are not ours to give.
    pub allocation: Option<Allocation>,
}

/// Where nodes get their pod CIDRs from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// `RangeAllocator`: the cluster CIDRs are divided.
    Ranges {
        /// One or two, of different families, in the order of `--cluster-cidr`.
        ranges: Vec<NodeRange>,
        /// `--service-cluster-ip-range`: nothing of it is given to a node.
        reserved: Vec<IpNet>,
    },
    /// `CloudAllocator`: the provider allots them.
    Cloud {
        /// `--cluster-cidr`: a node waits for a CIDR of each family in it. Empty: for any.
        cluster: Vec<IpNet>,
    },
}

/// A cluster CIDR and the size of a node's part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRange {
    /// What is divided.
    pub cluster: IpNet,
    /// Prefix length of a part; at least the cluster's, at most the family's.
    pub node_mask: u8,
}

impl RawCidrs {
    pub(super) fn resolve(
        &self,
        with_ipam: bool,
        mistakes: &mut Mistakes,
        warnings: &mut Vec<String>,
    ) -> Option<CidrSettings> {
        let cluster = mistakes.keep(networks::list(CLUSTER, &self.cluster_cidr, warnings));
        let service = mistakes.keep(networks::list(SERVICE, &self.service_cluster_ip_range, warnings));
        let allocate = mistakes.keep(value::switch("allocate-node-cidrs", &self.allocate_node_cidrs));
        let from_cloud = mistakes.keep(from_cloud(&self.cidr_allocator_type));
        let masks = self.masks.resolve(mistakes);
        let (cluster, service, masks) = (cluster?, service?, masks?);
        let allocate = allocate?;
        if allocate && !with_ipam {
            warnings.push(
                "--allocate-node-cidrs=true has no effect: unless kube-controller-manager gives nodes their CIDRs, \
                 add nodeipam to --controllers"
                    .to_owned(),
            );
        }
        let allocation = match (allocate && with_ipam, from_cloud?) {
            (false, _) => None,
            (true, true) => Some(Allocation::Cloud { cluster: cluster.clone() }),
            (true, false) => {
                let ranges = mistakes.keep(self.ranges(&cluster, &masks))?;
                mistakes.keep(networks::reserve(
                    &self.service_cluster_ip_range,
                    &service,
                    &ranges,
                    warnings,
                ))?;
                Some(Allocation::Ranges { ranges, reserved: service })
            }
        };
        Some(CidrSettings { cluster, allocation })
    }

    /// Each cluster CIDR with the mask of its family.
    fn ranges(&self, cluster: &[IpNet], masks: &masks::Masks) -> Result<Vec<NodeRange>, FlagError> {
        if cluster.is_empty() {
            return Err(FlagError::value(
                CLUSTER,
                &self.cluster_cidr,
                "there is nothing to divide with --allocate-node-cidrs=true",
                "give the networks of the pods, or --cidr-allocator-type=CloudAllocator if the cloud allots them",
            ));
        }
        let node_masks = masks.of(cluster)?;
        cluster.iter().zip(node_masks).map(|(cluster, mask)| mask.divide(cluster)).collect()
    }
}

fn from_cloud(name: &str) -> Result<bool, FlagError> {
    let error = |problem: &str, remedy: &str| FlagError::value("cidr-allocator-type", name, problem, remedy);
    match name {
        "RangeAllocator" => Ok(false),
        "CloudAllocator" => Ok(true),
        "IPAMFromCluster" => Err(error("was removed from Kubernetes", "give RangeAllocator")),
        "IPAMFromCloud" => Err(error("was removed from Kubernetes", "give CloudAllocator")),
        _ => Err(error("is unknown", "give RangeAllocator or CloudAllocator")),
    }
}
