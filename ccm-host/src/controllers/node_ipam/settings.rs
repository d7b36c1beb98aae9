//! The flags that define the pod and Service networks, and who assigns pod CIDRs.
//!
//! In: the flags of upstream's node-ipam and route controllers. Out: [`CidrSettings`] without contradictions: at most
//! one network per family, canonical, each with a node mask that fits it. A flag that is invalid by itself is always
//! refused; one that only prevents allocation, only if nodes are to be given CIDRs.

mod masks;
mod networks;
#[cfg(test)]
mod tests;

use clap::ArgAction;
use ipnet::IpNet;

use crate::flag::{self, FlagError, Mistakes, Wrong};

const CLUSTER: &str = "cluster-cidr";
const SERVICE: &str = "service-cluster-ip-range";
/// The flags that define how the cluster CIDRs are divided.
const DIVIDED_BY: [&str; 4] = ["cidr-allocator-type", masks::ANY, masks::IPV4, masks::IPV6];

/// The flags.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Pod networks")]
#[group(skip)]
pub struct Flags {
    /// Pod networks: one, or one per IP family, comma separated. Required for allocating pod CIDRs and for routes.
    #[arg(long, value_name = "LIST", default_value = "")]
    cluster_cidr: String,

    /// Service networks: one, or one per IP family, comma separated. They are never allocated to nodes.
    #[arg(long, value_name = "LIST", default_value = "")]
    service_cluster_ip_range: String,

    /// Allocate pod CIDRs to nodes. The node-ipam controller starts only with this flag and with nodeipam in
    /// --controllers.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    allocate_node_cidrs: bool,

    /// Source of pod CIDRs: RangeAllocator divides --cluster-cidr, CloudAllocator takes what the provider reports.
    #[arg(long, value_name = "NAME", default_value = "RangeAllocator", value_parser = allocator)]
    cidr_allocator_type: Allocator,

    #[command(flatten)]
    masks: masks::Flags,
}

/// The pod networks, and how nodes get their part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CidrSettings {
    /// `--cluster-cidr`: empty, one, or one of each family, in the order given.
    pub cluster: Vec<IpNet>,
    /// The source of nodes' pod CIDRs; `None` if this host does not assign them.
    pub allocation: Option<Allocation>,
}

/// The source of nodes' pod CIDRs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// `RangeAllocator`: the cluster CIDRs are divided.
    Ranges {
        /// One or two, of different families, in the order of `--cluster-cidr`.
        ranges: Vec<NodeRange>,
        /// `--service-cluster-ip-range`: never assigned to a node.
        reserved: Vec<IpNet>,
    },
    /// `CloudAllocator`: the provider allots them.
    Cloud {
        /// `--cluster-cidr`: a node waits for a CIDR of each family in it. Empty: for any.
        cluster: Vec<IpNet>,
    },
}

/// A cluster CIDR and the size of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRange {
    /// The network to divide.
    pub cluster: IpNet,
    /// Prefix length of a block; at least the cluster's, at most the family's.
    pub node_mask: u8,
}

impl Flags {
    /// Combines the flags; `with_ipam` says whether the controller is enabled.
    pub fn resolve(
        &self,
        with_ipam: bool,
        mistakes: &mut Mistakes,
        warnings: &mut Vec<String>,
    ) -> Option<CidrSettings> {
        let cluster = mistakes.keep(networks::list(CLUSTER, &self.cluster_cidr, warnings));
        let service = mistakes.keep(networks::list(SERVICE, &self.service_cluster_ip_range, warnings));
        let (cluster, service, allocate) = (cluster?, service?, self.allocate_node_cidrs);
        if allocate && !with_ipam {
            warnings.push(
                "--allocate-node-cidrs=true has no effect: unless kube-controller-manager gives nodes their CIDRs, \
                 add nodeipam to --controllers"
                    .to_owned(),
            );
        }
        let allocation = match self.cidr_allocator_type {
            _ if !allocate || !with_ipam => None,
            Allocator::Cloud => Some(Allocation::Cloud { cluster: cluster.clone() }),
            // A flag refused already says nothing about the others.
            Allocator::Range if !mistakes.spare(&DIVIDED_BY) => return None,
            Allocator::Range => {
                let ranges = mistakes.keep(self.ranges(&cluster))?;
                let range = &self.service_cluster_ip_range;
                mistakes.keep(networks::reserve(range, &service, &ranges, warnings))?;
                Some(Allocation::Ranges { ranges, reserved: service })
            }
        };
        Some(CidrSettings { cluster, allocation })
    }

    /// Each cluster CIDR with the mask of its family.
    fn ranges(&self, cluster: &[IpNet]) -> Result<Vec<NodeRange>, FlagError> {
        if cluster.is_empty() {
            return Err(Wrong::new(
                "there is nothing to divide with --allocate-node-cidrs=true",
                "give the networks of the pods, or --cidr-allocator-type=CloudAllocator if the cloud allocates them",
            )
            .of(CLUSTER, &self.cluster_cidr));
        }
        let node_masks = self.masks.of(cluster)?;
        cluster.iter().zip(node_masks).map(|(cluster, mask)| mask.divide(cluster)).collect()
    }
}

/// The `--cidr-allocator-type`.
#[derive(Clone, Copy, Debug)]
enum Allocator {
    Range,
    Cloud,
}

fn allocator(name: &str) -> Result<Allocator, Wrong> {
    match name {
        "RangeAllocator" => Ok(Allocator::Range),
        "CloudAllocator" => Ok(Allocator::Cloud),
        "IPAMFromCluster" => Err(Wrong::new("was removed from Kubernetes", "give RangeAllocator")),
        "IPAMFromCloud" => Err(Wrong::new("was removed from Kubernetes", "give CloudAllocator")),
        _ => Err(Wrong::new("is unknown", "give RangeAllocator or CloudAllocator")),
    }
}
