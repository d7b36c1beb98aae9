//! The blocks of one cluster CIDR, and their owners.
//!
//! In: runs of blocks that owners claim or return, requests for a free block. Out: what became occupied or free, also
//! counted under upstream's names, and the networks of blocks. A block may have several owners (two nodes with the same
//! podCIDR, a node within the Service range) and is free again only when the last of them has returned it. Only occupied
//! blocks take memory, whatever the size of the cluster CIDR. [`super::ledger`] decides which block belongs to which
//! node, and why.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use ipnet::IpNet;

use super::{IpamMetrics, SetSeries};
use ccm_base::cidr;
use ccm_reconcile::settings::cidrs::NodeRange;

/// The owner of a block.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BlockOwner {
    /// The Service range.
    Services,
    /// The node with this uid.
    Node(Arc<str>),
}

/// A cluster CIDR, divided into blocks of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    cluster: IpNet,
    node_mask: u8,
}

/// A run of blocks, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blocks {
    pub(super) first: u128,
    pub(super) last: u128,
}

#[derive(Debug)]
pub(super) struct CidrSet {
    grid: Grid,
    /// By first block. Runs do not overlap, and each has an owner.
    runs: BTreeMap<u128, BlockRun>,
    occupied: u128,
    /// The block at which the next search starts.
    next: u128,
    series: SetSeries,
}

/// Consecutive blocks with the same owners.
#[derive(Debug, Clone)]
struct BlockRun {
    last: u128,
    owners: Vec<BlockOwner>,
}

impl CidrSet {
    pub(super) fn new(range: &NodeRange, metrics: &IpamMetrics) -> Self {
        let grid = Grid::new(range.cluster, range.node_mask);
        let series = metrics.of_set(grid.cluster(), grid.capacity());
        Self { grid, runs: BTreeMap::new(), occupied: 0, next: 0, series }
    }

    pub(super) fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The occupied part of the whole, 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub(super) fn usage(&self) -> f64 {
        self.occupied as f64 / self.grid.capacity()
    }

    /// The next free block, round robin, so that returned blocks rest before they are used again.
    pub(super) fn free(&self) -> Option<u128> {
        self.free_from(self.next).or_else(|| self.free_from(0))
    }

    /// Assigns a block from [`CidrSet::free`] to an owner; the next search starts after it.
    #[expect(clippy::cast_precision_loss, reason = "a histogram for people")]
    pub(super) fn take(&mut self, block: u128, owner: &BlockOwner) -> (Blocks, IpNet) {
        let blocks = Blocks::one(block);
        self.series.tries.observe(self.distance(block) as f64);
        self.occupy(blocks, owner);
        self.next = if block == self.grid.last() { 0 } else { block + 1 };
        (blocks, self.grid.block(block))
    }

    /// Adds the owner to these blocks, whoever else owns them; returns how many had no owner before.
    pub(super) fn occupy(&mut self, blocks: Blocks, owner: &BlockOwner) -> u128 {
        self.cut(blocks);
        let mut gaps = Vec::new();
        let mut expected = Some(blocks.first);
        for (first, run) in self.runs.range_mut(blocks.first..=blocks.last) {
            if let Some(gap) = expected.and_then(|expected| Blocks::before(expected, *first)) {
                gaps.push(gap);
            }
            if !run.owners.contains(owner) {
                run.owners.push(owner.clone());
            }
            expected = run.last.checked_add(1);
        }
        gaps.extend(expected.filter(|first| *first <= blocks.last).map(|first| Blocks { first, ..blocks }));
        let mut fresh = 0_u128;
        for Blocks { first, last } in gaps {
            self.runs.insert(first, BlockRun { last, owners: vec![owner.clone()] });
            fresh = fresh.saturating_add(Blocks { first, last }.count());
        }
        self.occupied = self.occupied.saturating_add(fresh);
        self.series.count(&self.series.allocations, fresh, self.usage());
        fresh
    }

    /// Removes the owner from these blocks; returns how many have no owner any more.
    pub(super) fn release(&mut self, blocks: Blocks, owner: &BlockOwner) -> u128 {
        self.cut(blocks);
        let mut freed = Vec::new();
        for (first, run) in self.runs.range_mut(blocks.first..=blocks.last) {
            run.owners.retain(|other| other != owner);
            if run.owners.is_empty() {
                freed.push(Blocks { first: *first, last: run.last });
            }
        }
        let count = freed.iter().fold(0, |count: u128, freed| count.saturating_add(freed.count()));
        freed.iter().for_each(|freed| drop(self.runs.remove(&freed.first)));
        self.occupied = self.occupied.saturating_sub(count);
        self.series.count(&self.series.releases, count, self.usage());
        count
    }

    /// The other owners of these blocks, without duplicates.
    pub(super) fn others(&self, blocks: Blocks, owner: &BlockOwner) -> Vec<&BlockOwner> {
        let before = self.runs.range(..blocks.first).next_back().filter(|(_, run)| run.last >= blocks.first);
        let runs = before.into_iter().chain(self.runs.range(blocks.first..=blocks.last));
        let mut others: Vec<_> =
            runs.flat_map(|(_, run)| &run.owners).filter(|other| *other != owner).collect();
        others.sort_unstable();
        others.dedup();
        others
    }

    /// Splits runs so that they begin and end where these blocks do.
    fn cut(&mut self, blocks: Blocks) {
        self.cut_before(blocks.first);
        if let Some(behind) = blocks.last.checked_add(1) {
            self.cut_before(behind);
        }
    }

    fn cut_before(&mut self, block: u128) {
        let Some((_, run)) = self.runs.range_mut(..block).next_back() else { return };
        if run.last >= block {
            let tail = run.clone();
            run.last = block - 1;
            self.runs.insert(block, tail);
        }
    }

    fn free_from(&self, start: u128) -> Option<u128> {
        let covering = self.runs.range(..start).next_back().filter(|(_, run)| run.last >= start);
        let mut candidate = match covering {
            Some((_, run)) => run.last.checked_add(1)?,
            None => start,
        };
        for (first, run) in self.runs.range(candidate..) {
            if *first > candidate {
                break;
            }
            candidate = run.last.checked_add(1)?;
        }
        (candidate <= self.grid.last()).then_some(candidate)
    }

    /// The occupied blocks that the search for this one skipped.
    fn distance(&self, block: u128) -> u128 {
        match block.checked_sub(self.next) {
            Some(distance) => distance,
            None => (self.grid.last() - self.next).saturating_add(1).saturating_add(block),
        }
    }
}

impl Blocks {
    pub(super) const fn one(block: u128) -> Self {
        Self { first: block, last: block }
    }

    /// From `first` to just before `end`; `None` if that is empty.
    fn before(first: u128, end: u128) -> Option<Self> {
        (first < end).then(|| Self { first, last: end - 1 })
    }

    const fn count(self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }
}

impl Grid {
    /// The mask is at least the cluster's and at most the family's: the flags ensure that.
    pub(super) fn new(cluster: IpNet, node_mask: u8) -> Self {
        Self { cluster: cluster.trunc(), node_mask }
    }

    pub(super) fn cluster(&self) -> &IpNet {
        &self.cluster
    }

    /// The number of the last block; the number of blocks could overflow.
    fn last(&self) -> u128 {
        let bits = u32::from(self.node_mask.saturating_sub(self.cluster.prefix_len()));
        u128::MAX.checked_shr(u128::BITS - bits).unwrap_or(0)
    }

    /// The number of blocks, rounded: for people.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub(super) fn capacity(&self) -> f64 {
        self.last() as f64 + 1.0
    }

    fn block(&self, block: u128) -> IpNet {
        let offset = block.checked_shl(self.shift()).unwrap_or(0);
        let address = from_number(&self.cluster, to_number(self.cluster.addr()).saturating_add(offset));
        // A mask that does not fit the family is impossible, see `new`; fall back to the cluster CIDR.
        IpNet::new(address, self.node_mask).unwrap_or(self.cluster)
    }

    /// The block that contains an address; `None` if it is outside the cluster CIDR.
    fn index(&self, address: IpAddr) -> Option<u128> {
        let offset = to_number(address) ^ to_number(self.cluster.addr());
        self.cluster.contains(&address).then(|| offset.checked_shr(self.shift()).unwrap_or(0))
    }

    /// The blocks that a network overlaps, even in part; `None` if it is outside the cluster CIDR.
    pub(super) fn blocks(&self, network: &IpNet) -> Option<Blocks> {
        if !cidr::overlap(&self.cluster, network) {
            return None;
        }
        if network.prefix_len() <= self.cluster.prefix_len() {
            return Some(Blocks { first: 0, last: self.last() });
        }
        let network = network.trunc();
        Some(Blocks { first: self.index(network.addr())?, last: self.index(network.broadcast())? })
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
