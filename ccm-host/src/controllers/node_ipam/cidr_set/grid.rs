//! Maps blocks of a cluster CIDR to networks and back: plain arithmetic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::cidr;

/// A cluster CIDR, divided into blocks of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Grid {
    cluster: IpNet,
    node_mask: u8,
}

/// A run of blocks, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Blocks {
    pub(in super::super) first: u128,
    pub(in super::super) last: u128,
}

/// A network or address outside the cluster CIDR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct OutOfRange;

impl Blocks {
    pub(in super::super) const fn one(block: u128) -> Self {
        Self { first: block, last: block }
    }

    /// From `first` to just before `end`; `None` if that is empty.
    pub(super) fn before(first: u128, end: u128) -> Option<Self> {
        (first < end).then(|| Self { first, last: end - 1 })
    }

    pub(super) const fn count(self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }
}

impl Grid {
    /// The mask is at least the cluster's and at most the family's: the flags ensure that.
    pub(in super::super) fn new(cluster: IpNet, node_mask: u8) -> Self {
        Self { cluster: cluster.trunc(), node_mask }
    }

    pub(in super::super) fn cluster(&self) -> &IpNet {
        &self.cluster
    }

    /// The number of the last block; the number of blocks could overflow.
    pub(super) fn last(&self) -> u128 {
        let bits = u32::from(self.node_mask.saturating_sub(self.cluster.prefix_len()));
        u128::MAX.checked_shr(u128::BITS - bits).unwrap_or(0)
    }

    /// The number of blocks, rounded: for people.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub(in super::super) fn capacity(&self) -> f64 {
        self.last() as f64 + 1.0
    }

    pub(super) fn block(&self, block: u128) -> IpNet {
        let offset = block.checked_shl(self.shift()).unwrap_or(0);
        let address = from_number(&self.cluster, to_number(self.cluster.addr()).saturating_add(offset));
        // A mask that does not fit the family is impossible, see `new`; fall back to the cluster CIDR.
        IpNet::new(address, self.node_mask).unwrap_or(self.cluster)
    }

    /// The block that contains an address.
    pub(super) fn index(&self, address: IpAddr) -> Result<u128, OutOfRange> {
        if !self.cluster.contains(&address) {
            return Err(OutOfRange);
        }
        let offset = to_number(address) ^ to_number(self.cluster.addr());
        Ok(offset.checked_shr(self.shift()).unwrap_or(0))
    }

    /// The blocks that a network overlaps, even in part.
    pub(in super::super) fn blocks(&self, network: &IpNet) -> Result<Blocks, OutOfRange> {
        if !cidr::overlap(&self.cluster, network) {
            return Err(OutOfRange);
        }
        if network.prefix_len() <= self.cluster.prefix_len() {
            return Ok(Blocks { first: 0, last: self.last() });
        }
        let network = network.trunc();
        Ok(Blocks { first: self.index(network.addr())?, last: self.index(network.broadcast())? })
    }

    fn shift(&self) -> u32 {
        u32::from(self.cluster.max_prefix_len().saturating_sub(self.node_mask))
    }
}

fn to_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// An address of the network's family.
fn from_number(family: &IpNet, number: u128) -> IpAddr {
    match family {
        IpNet::V4(_) => Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into(),
        IpNet::V6(_) => Ipv6Addr::from(number).into(),
    }
}
