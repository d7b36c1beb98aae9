//! The flags that define the pod and Service networks, and who assigns pod CIDRs.
//!
//! In: the flags of upstream's node-ipam and route controllers. Out: [`CidrSettings`] without contradictions: at most
//! one network per family, canonical, each with a node mask that fits it. A flag that is invalid by itself is always
//! refused; one that only prevents allocation, only if nodes are to be given CIDRs.

use clap::ArgAction;
use ipnet::IpNet;

use ccm_base::{
    cidr,
    flag::{self, FlagError, Mistakes, Wrong},
};

const CLUSTER: &str = "cluster-cidr";
const SERVICE: &str = "service-cluster-ip-range";
const ANY: &str = "node-cidr-mask-size";
const IPV4: &str = "node-cidr-mask-size-ipv4";
const IPV6: &str = "node-cidr-mask-size-ipv6";
/// The flags that define how the cluster CIDRs are divided.
const DIVIDED_BY: [&str; 4] = ["cidr-allocator-type", ANY, IPV4, IPV6];

/// The flags.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Pod networks")]
#[group(skip)]
pub struct CidrFlags {
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

    /// Prefix length of a node's pod CIDR in a single-stack cluster; 0 means 24 for IPv4 and 64 for IPv6.
    #[arg(long, value_name = "INT", default_value = "0", value_parser = size_ipv6)]
    node_cidr_mask_size: u8,

    /// Prefix length of a node's IPv4 pod CIDR; 0 means 24.
    #[arg(long, value_name = "INT", default_value = "0", value_parser = size_ipv4)]
    node_cidr_mask_size_ipv4: u8,

    /// Prefix length of a node's IPv6 pod CIDR; 0 means 64.
    #[arg(long, value_name = "INT", default_value = "0", value_parser = size_ipv6)]
    node_cidr_mask_size_ipv6: u8,
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
    /// `CloudAllocator`: the provider allots them. A node waits for a CIDR of each family of the cluster CIDRs; if there
    /// are none, for any.
    Cloud,
}

/// A cluster CIDR and the size of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRange {
    /// The network to divide.
    pub cluster: IpNet,
    /// Prefix length of a block; at least the cluster's, at most the family's.
    pub node_mask: u8,
}

impl CidrFlags {
    /// Combines the flags; `with_ipam` says whether the controller is enabled.
    pub fn resolve(
        &self,
        with_ipam: bool,
        mistakes: &mut Mistakes,
        warnings: &mut Vec<String>,
    ) -> Option<CidrSettings> {
        let cluster = mistakes.keep(networks(CLUSTER, &self.cluster_cidr, warnings));
        let service = mistakes.keep(networks(SERVICE, &self.service_cluster_ip_range, warnings));
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
            Allocator::Cloud => Some(Allocation::Cloud),
            // A flag refused already says nothing about the others.
            Allocator::Range if !mistakes.spare(&DIVIDED_BY) => return None,
            Allocator::Range => {
                let ranges = mistakes.keep(self.ranges(&cluster))?;
                let range = &self.service_cluster_ip_range;
                mistakes.keep(reserve(range, &service, &ranges, warnings))?;
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
        let masks = self.masks(cluster)?;
        cluster.iter().zip(masks).map(|(cluster, (flag, size))| divide(cluster, flag, size)).collect()
    }

    /// The size of the blocks of each cluster CIDR, by its family, with the flag that set it, or would.
    fn masks(&self, cluster: &[IpNet]) -> Result<Vec<(&'static str, u8)>, FlagError> {
        // 0 is as if the flag were not there.
        let given = |size: u8| Some(size).filter(|size| *size > 0);
        let any = given(self.node_cidr_mask_size);
        let (ipv4, ipv6) = (given(self.node_cidr_mask_size_ipv4), given(self.node_cidr_mask_size_ipv6));
        if let Some(any) = any {
            let problem = match cluster {
                [_, _, ..] => Some("cannot say which of the two families it is for"),
                _ if ipv4.is_some() || ipv6.is_some() => Some("is given beside a size for one family"),
                _ => None,
            };
            if let Some(problem) = problem {
                let remedy = format!("give --{IPV4} and --{IPV6} only");
                return Err(Wrong::new(problem, remedy).of(ANY, &any.to_string()));
            }
        }
        if let [only] = cluster {
            let (flag, size) = if only.addr().is_ipv4() { (IPV6, ipv6) } else { (IPV4, ipv4) };
            if let Some(size) = size {
                let problem = format!("the cluster CIDR {only} is of {}", cidr::family(only));
                let wrong = Wrong::new(problem, "leave it out, or give a cluster CIDR of each family");
                return Err(wrong.of(flag, &size.to_string()));
            }
        }
        let mask = |cluster: &IpNet| {
            let (flag, size, default) =
                if cluster.addr().is_ipv4() { (IPV4, ipv4, 24) } else { (IPV6, ipv6, 64) };
            any.map_or((flag, size.unwrap_or(default)), |size| (ANY, size))
        };
        Ok(cluster.iter().map(mask).collect())
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

/// Divides the cluster CIDR into blocks of the size that this flag set.
fn divide(cluster: &IpNet, flag: &str, size: u8) -> Result<NodeRange, FlagError> {
    let (least, most) = (cluster.prefix_len(), cluster.max_prefix_len());
    let problem = if size > most {
        format!("is longer than an address of {}", cidr::family(cluster))
    } else if size < least {
        format!("is a part larger than the cluster CIDR {cluster}")
    } else {
        return Ok(NodeRange { cluster: *cluster, node_mask: size });
    };
    Err(Wrong::new(problem, format!("give {least} to {most}")).of(flag, &size.to_string()))
}

/// Parses a list of networks, in order and canonical; empty if the value is.
fn networks(name: &str, value: &str, warnings: &mut Vec<String>) -> Result<Vec<IpNet>, FlagError> {
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
fn reserve(
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

fn size_ipv4(text: &str) -> Result<u8, Wrong> {
    size(text, 32)
}

fn size_ipv6(text: &str) -> Result<u8, Wrong> {
    size(text, 128)
}

fn size(text: &str, width: u8) -> Result<u8, Wrong> {
    let wrong = || Wrong::new("is not a prefix length", format!("give 1 to {width}, or 0 for the default"));
    text.parse().ok().filter(|size| *size <= width).ok_or_else(wrong)
}
