//! `--node-cidr-mask-size` and its two siblings: how large a node's part of each cluster CIDR is.

use ipnet::IpNet;

use super::NodeRange;
use crate::cidr;
use crate::manager::flags::error::{FlagError, Mistakes};

const ANY: &str = "node-cidr-mask-size";
const IPV4: &str = "node-cidr-mask-size-ipv4";
const IPV6: &str = "node-cidr-mask-size-ipv6";

const WIDTH_IPV4: u8 = 32;
const WIDTH_IPV6: u8 = 128;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Pod networks")]
pub(super) struct RawMasks {
    /// Prefix length of a node's pod CIDR in a cluster of one family; 0 means 24 for IPv4 and 64 for IPv6.
    #[arg(long, value_name = "INT", default_value = "0")]
    pub node_cidr_mask_size: String,

    /// Prefix length of a node's IPv4 pod CIDR; 0 means 24.
    #[arg(long, value_name = "INT", default_value = "0")]
    pub node_cidr_mask_size_ipv4: String,

    /// Prefix length of a node's IPv6 pod CIDR; 0 means 64.
    #[arg(long, value_name = "INT", default_value = "0")]
    pub node_cidr_mask_size_ipv6: String,
}

/// The three sizes, none where the flag is 0.
#[derive(Debug)]
pub(super) struct Masks {
    any: Option<u8>,
    ipv4: Option<u8>,
    ipv6: Option<u8>,
}

/// A size and the flag that says it.
#[derive(Debug)]
pub(super) struct NodeMask {
    flag: &'static str,
    size: u8,
}

impl RawMasks {
    pub(super) fn resolve(&self, mistakes: &mut Mistakes) -> Option<Masks> {
        let any = mistakes.keep(size(ANY, &self.node_cidr_mask_size, WIDTH_IPV6));
        let ipv4 = mistakes.keep(size(IPV4, &self.node_cidr_mask_size_ipv4, WIDTH_IPV4));
        let ipv6 = mistakes.keep(size(IPV6, &self.node_cidr_mask_size_ipv6, WIDTH_IPV6));
        Some(Masks { any: any?, ipv4: ipv4?, ipv6: ipv6? })
    }
}

impl Masks {
    /// One for each cluster CIDR, by its family.
    pub(super) fn of(&self, cluster: &[IpNet]) -> Result<Vec<NodeMask>, FlagError> {
        if let Some(any) = self.any {
            let problem = match cluster {
                [_, _, ..] => Some("cannot say which of the two families it is for"),
                _ if self.ipv4.is_some() || self.ipv6.is_some() => {
                    Some("is given beside a size for one family")
                }
                _ => None,
            };
            if let Some(problem) = problem {
                let remedy = format!("give --{IPV4} and --{IPV6} only");
                return Err(FlagError::value(ANY, &any.to_string(), problem, remedy));
            }
        }
        if let [only] = cluster {
            let (flag, size) = if only.addr().is_ipv4() { (IPV6, self.ipv6) } else { (IPV4, self.ipv4) };
            if let Some(size) = size {
                return Err(FlagError::value(
                    flag,
                    &size.to_string(),
                    format!("the cluster CIDR {only} is of {}", cidr::family(only)),
                    "leave it out, or give a cluster CIDR of each family",
                ));
            }
        }
        Ok(cluster.iter().map(|cluster| self.of_one(cluster)).collect())
    }

    fn of_one(&self, cluster: &IpNet) -> NodeMask {
        let (flag, size, default) =
            if cluster.addr().is_ipv4() { (IPV4, self.ipv4, 24) } else { (IPV6, self.ipv6, 64) };
        match self.any {
            Some(size) => NodeMask { flag: ANY, size },
            None => NodeMask { flag, size: size.unwrap_or(default) },
        }
    }
}

impl NodeMask {
    /// The cluster CIDR in parts of this size.
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
        Err(FlagError::value(flag, &size.to_string(), problem, format!("give {least} to {most}")))
    }
}

/// A prefix length; 0 is as if the flag were not there.
fn size(flag: &str, value: &str, width: u8) -> Result<Option<u8>, FlagError> {
    match value.parse::<u8>() {
        Ok(0) => Ok(None),
        Ok(size) if size <= width => Ok(Some(size)),
        _ => Err(FlagError::value(
            flag,
            value,
            "is not a prefix length",
            format!("give 1 to {width}, or 0 for the default"),
        )),
    }
}
