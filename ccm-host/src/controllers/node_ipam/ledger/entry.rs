//! The ledger's entry for one node.

use ipnet::IpNet;

use crate::controllers::node_ipam::{cidr_set::Blocks, problem::Problem};

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) holding: Holding,
    /// Problems with podCIDRs outside our cluster CIDRs.
    pub(super) unusable: Vec<Problem>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Holding {
    Nothing,
    /// To be written, or written with unknown outcome.
    Proposed(Vec<Claim>),
    /// As read from the Node.
    Assigned(Vec<Claim>),
}

/// A network and the blocks it occupies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) pool: usize,
    pub(super) blocks: Blocks,
    pub(super) network: IpNet,
}

impl Holding {
    pub(super) fn claims(&self) -> &[Claim] {
        match self {
            Self::Nothing => &[],
            Self::Proposed(claims) | Self::Assigned(claims) => claims,
        }
    }
}
