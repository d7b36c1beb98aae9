//! `--node-cidr-mask-size` and its two siblings: the size of a node's block in each cluster CIDR.

use ipnet::IpNet;

use super::NodeRange;
use crate::cidr;
use crate::flag::{FlagError, Wrong};

pub(super) const ANY: &str = "node-cidr-mask-size";
pub(super) const IPV4: &str = "node-cidr-mask-size-ipv4";
pub(super) const IPV6: &str = "node-cidr-mask-size-ipv6";

const WIDTH_IPV4: u8 = 32;
const WIDTH_IPV6: u8 = 128;

/// The three sizes; 0 is as if the flag were not there.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Pod networks")]
#[group(skip)]
pub(super) struct Flags {
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

/// A size and the flag that set it, or would.
#[derive(Debug)]
pub(super) struct NodeMask {
    flag: &'static str,
    size: u8,
}

impl Flags {
    fn any(&self) -> Option<u8> {
        Some(self.node_cidr_mask_size).filter(|size| *size > 0)
    }

    fn ipv4(&self) -> Option<u8> {
        Some(self.node_cidr_mask_size_ipv4).filter(|size| *size > 0)
    }

    fn ipv6(&self) -> Option<u8> {
        Some(self.node_cidr_mask_size_ipv6).filter(|size| *size > 0)
    }

    /// One mask for each cluster CIDR, by its family.
    pub(super) fn of(&self, cluster: &[IpNet]) -> Result<Vec<NodeMask>, FlagError> {
        if let Some(any) = self.any() {
            let problem = match cluster {
                [_, _, ..] => Some("cannot say which of the two families it is for"),
                _ if self.ipv4().is_some() || self.ipv6().is_some() => {
                    Some("is given beside a size for one family")
                }
                _ => None,
            };
            if let Some(problem) = problem {
                let remedy = format!("give --{IPV4} and --{IPV6} only");
                return Err(Wrong::new(problem, remedy).of(ANY, &any.to_string()));
            }
        }
        if let [only] = cluster {
            let (flag, size) = if only.addr().is_ipv4() { (IPV6, self.ipv6()) } else { (IPV4, self.ipv4()) };
            if let Some(size) = size {
                let problem = format!("the cluster CIDR {only} is of {}", cidr::family(only));
                let wrong = Wrong::new(problem, "leave it out, or give a cluster CIDR of each family");
                return Err(wrong.of(flag, &size.to_string()));
            }
        }
        Ok(cluster.iter().map(|cluster| self.of_one(cluster)).collect())
    }

    fn of_one(&self, cluster: &IpNet) -> NodeMask {
        let (flag, size, default) =
            if cluster.addr().is_ipv4() { (IPV4, self.ipv4(), 24) } else { (IPV6, self.ipv6(), 64) };
        match self.any() {
            Some(size) => NodeMask { flag: ANY, size },
            None => NodeMask { flag, size: size.unwrap_or(default) },
        }
    }
}

impl NodeMask {
    /// Divides the cluster CIDR into blocks of this size.
    pub(super) fn divide(self, cluster: &IpNet) -> Result<NodeRange, FlagError> {
        let Self { flag, size } = self;
        let problem = if size > cluster.max_prefix_len() {
            format!("is longer than an address of {}", cidr::family(cluster))
        } else if size < cluster.prefix_len() {
            format!("is a part larger than the cluster CIDR {cluster}")
        } else {
            return Ok(NodeRange { cluster: *cluster, node_mask: size });
        };
        let (least, most) = (cluster.prefix_len(), cluster.max_prefix_len());
        Err(Wrong::new(problem, format!("give {least} to {most}")).of(flag, &size.to_string()))
    }
}

fn size_ipv4(text: &str) -> Result<u8, Wrong> {
    size(text, WIDTH_IPV4)
}

fn size_ipv6(text: &str) -> Result<u8, Wrong> {
    size(text, WIDTH_IPV6)
}

fn size(text: &str, width: u8) -> Result<u8, Wrong> {
    let wrong = || Wrong::new("is not a prefix length", format!("give 1 to {width}, or 0 for the default"));
    text.parse().ok().filter(|size| *size <= width).ok_or_else(wrong)
}
