//! Tracks which node has which blocks. Pure bookkeeping: no client, no clock.
//!
//! In: nodes as they come, change and go, and their requests for pod CIDRs. Out: the CIDRs to write, the names of nodes
//! that a change affects (a block is free for them, or other things are wrong with theirs), and what is wrong.
//!
//! A block belongs to a node, by its uid, from the moment it is proposed until the node is gone, or until the
//! apiserver is known to have something else. So a write of unknown outcome needs no special care: the next attempt
//! proposes the same blocks.
//!
//! ```text
//!            allot               see: podCIDRs are set
//! Nothing ─────────► Proposed ────────────────────────► Assigned
//!    ▲                  │ give back: surely not written      │
//!    └──────────────────┴──────── forget: the node is gone ──┘
//! ```

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use ipnet::IpNet;

use super::{
    IpamMetrics,
    cidr_set::{BlockOwner, Blocks, CidrSet},
    problem,
};
use ccm_base::cidr;
use ccm_kube::node::Node;
use ccm_reconcile::{Report, settings::cidrs::NodeRange};

#[derive(Debug)]
pub(super) struct Ledger {
    /// One for each cluster CIDR, in their order.
    sets: Vec<CidrSet>,
    nodes: HashMap<Arc<str>, NodeEntry>,
    /// Nodes for which no block was free.
    waiting: BTreeSet<Arc<str>>,
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Allotment {
    /// One for each cluster CIDR, in their order.
    Cidrs(Vec<IpNet>),
    /// This cluster CIDR has no free block; the node is woken when one is free. If one node holds more of it than any other:
    /// its name, and the podCIDR by which it does.
    Exhausted(IpNet, Option<(String, IpNet)>),
    /// Another node has the proposed CIDRs: the proposal must be given back.
    Contested,
    /// The node has podCIDRs already, or is gone.
    Nothing,
}

impl Ledger {
    /// A ledger in which the reserved networks are occupied.
    pub(super) fn new(ranges: &[NodeRange], reserved: &[IpNet], metrics: &IpamMetrics) -> Self {
        let mut sets: Vec<_> = ranges.iter().map(|range| CidrSet::new(range, metrics)).collect();
        for set in &mut sets {
            for network in reserved {
                if let Some(blocks) = set.grid().blocks(network) {
                    set.occupy(blocks, &BlockOwner::Services);
                }
            }
        }
        Self { sets, nodes: HashMap::new(), waiting: BTreeSet::new() }
    }

    /// Records a node as the cache has it.
    pub(super) fn see(&mut self, node: &Node) -> Vec<String> {
        if !self.nodes.contains_key(node.uid.as_str()) {
            let entry =
                NodeEntry { name: node.name.clone(), holding: Holding::Nothing, unusable: Vec::new() };
            self.nodes.insert(node.uid.as_str().into(), entry);
        }
        self.learn(node)
    }

    /// Records a node as read by someone with newer data than the cache. A node that the cache has lost is not added
    /// again; without podCIDRs it keeps its proposal.
    pub(super) fn learn(&mut self, node: &Node) -> Vec<String> {
        let Some(uid) = self.uid(&node.uid).filter(|_| !node.pod_cidrs.is_empty()) else {
            return Vec::new();
        };
        let (claims, unusable) = self.read(&node.pod_cidrs);
        let Some(entry) = self.nodes.get_mut(&uid) else { return Vec::new() };
        if matches!(&entry.holding, Holding::Assigned(before) if *before == claims && entry.unusable == unusable)
        {
            return Vec::new();
        }
        entry.unusable = unusable;
        let before = std::mem::replace(&mut entry.holding, Holding::Assigned(claims.clone()));
        self.waiting.remove(&uid);
        let left: Vec<_> = before.claims().iter().filter(|claim| !claims.contains(claim)).copied().collect();
        let mut touched = self.neighbours(&uid, &left);
        let freed = self.release(&uid, &left);
        let owner = BlockOwner::Node(Arc::clone(&uid));
        for claim in &claims {
            self.sets[claim.set].occupy(claim.blocks, &owner);
        }
        touched.extend(self.neighbours(&uid, &claims));
        touched.insert(uid);
        self.affected(freed, touched)
    }

    /// Forgets a node that is gone, and frees the blocks that it alone had.
    pub(super) fn forget(&mut self, uid: &str) -> Vec<String> {
        self.waiting.remove(uid);
        let Some((uid, entry)) = self.nodes.remove_entry(uid) else { return Vec::new() };
        let claims = entry.holding.claims();
        let touched = self.neighbours(&uid, claims);
        let freed = self.release(&uid, claims);
        self.affected(freed, touched)
    }

    /// Allots to a node without podCIDRs: one block of each cluster CIDR, or nothing at all. Idempotent.
    pub(super) fn allot(&mut self, uid: &str) -> Allotment {
        let Some(uid) = self.uid(uid) else { return Allotment::Nothing };
        match self.holding(&uid) {
            Holding::Assigned(_) => return Allotment::Nothing,
            Holding::Proposed(claims) if self.neighbours(&uid, claims).is_empty() => {
                return Allotment::Cidrs(claims.iter().map(|claim| claim.network).collect());
            }
            Holding::Proposed(_) => return Allotment::Contested,
            Holding::Nothing => {}
        }
        let mut found = Vec::with_capacity(self.sets.len());
        for (index, set) in self.sets.iter().enumerate() {
            match set.free() {
                Some(free) => found.push(free),
                None => {
                    self.waiting.insert(uid);
                    return Allotment::Exhausted(*set.grid().cluster(), self.widest(index));
                }
            }
        }
        let owner = BlockOwner::Node(Arc::clone(&uid));
        let take = |(index, (set, free)): (_, (&mut CidrSet, _))| {
            let (blocks, network) = set.take(free, &owner);
            Occupied { set: index, blocks, network }
        };
        let claims: Vec<_> = self.sets.iter_mut().zip(found).enumerate().map(take).collect();
        let cidrs = claims.iter().map(|claim| claim.network).collect();
        if let Some(entry) = self.nodes.get_mut(&uid) {
            entry.holding = Holding::Proposed(claims);
        }
        Allotment::Cidrs(cidrs)
    }

    /// The node that holds more blocks of a cluster CIDR by one podCIDR than any other node.
    fn widest(&self, set: usize) -> Option<(String, IpNet)> {
        let claims = self.nodes.values().flat_map(|entry| {
            entry.holding.claims().iter().filter(|claim| claim.set == set).map(|claim| (&entry.name, claim))
        });
        let size = |claim: &Occupied| claim.blocks.last.saturating_sub(claim.blocks.first);
        let mut claims: Vec<_> = claims.map(|(name, claim)| (size(claim), name, claim.network)).collect();
        claims.sort_unstable_by_key(|(size, ..)| std::cmp::Reverse(*size));
        match &claims[..] {
            [(most, name, network), (next, ..), ..] if most > next => Some(((*name).clone(), *network)),
            _ => None,
        }
    }

    /// Takes back a proposal that certainly was not, and will not be, written.
    pub(super) fn give_back(&mut self, uid: &str) -> Vec<String> {
        let Some(uid) = self.uid(uid) else { return Vec::new() };
        let Some(NodeEntry { holding, .. }) = self.nodes.get_mut(&uid) else { return Vec::new() };
        let Holding::Proposed(claims) = holding else { return Vec::new() };
        let claims = std::mem::take(claims);
        *holding = Holding::Nothing;
        let touched = self.neighbours(&uid, &claims);
        let freed = self.release(&uid, &claims);
        self.affected(freed, touched)
    }

    /// The shared string of a known uid.
    fn uid(&self, uid: &str) -> Option<Arc<str>> {
        self.nodes.get_key_value(uid).map(|(uid, _)| Arc::clone(uid))
    }

    fn holding(&self, uid: &Arc<str>) -> &Holding {
        self.nodes.get(uid).map_or(&Holding::Nothing, |entry| &entry.holding)
    }

    /// The blocks of podCIDRs, each in the cluster CIDR of its family, and what is wrong with the others.
    fn read(&self, pod_cidrs: &[String]) -> (Vec<Occupied>, Vec<Report>) {
        let (mut claims, mut unusable) = (Vec::new(), Vec::new());
        for text in pod_cidrs {
            match self.claim(text) {
                Ok(claim) => claims.push(claim),
                Err(problem) => unusable.push(problem),
            }
        }
        (claims, unusable)
    }

    fn claim(&self, text: &str) -> Result<Occupied, Report> {
        let network = cidr::parse(text).ok_or_else(|| problem::malformed(text))?.trunc();
        let mut grids = self.sets.iter().map(CidrSet::grid).enumerate();
        let of_family = grids.find(|(_, grid)| cidr::same_family(grid.cluster(), &network));
        let (set, grid) = of_family.ok_or_else(|| problem::other_family(&network))?;
        let blocks = grid.blocks(&network).ok_or_else(|| problem::out_of_range(&network, grid.cluster()))?;
        Ok(Occupied { set, blocks, network })
    }

    /// Returns how many blocks have no owner any more.
    fn release(&mut self, uid: &Arc<str>, claims: &[Occupied]) -> u128 {
        let owner = BlockOwner::Node(Arc::clone(uid));
        claims
            .iter()
            .fold(0, |freed, claim| self.sets[claim.set].release(claim.blocks, &owner).saturating_add(freed))
    }

    /// The other nodes that own any of these blocks.
    fn neighbours(&self, uid: &Arc<str>, claims: &[Occupied]) -> BTreeSet<Arc<str>> {
        let owner = BlockOwner::Node(Arc::clone(uid));
        let others = claims.iter().flat_map(|claim| self.sets[claim.set].others(claim.blocks, &owner));
        others
            .filter_map(|other| match other {
                BlockOwner::Node(uid) => Some(Arc::clone(uid)),
                BlockOwner::Services => None,
            })
            .collect()
    }

    /// The names of these nodes, and of those that wait for a block, if some were freed.
    fn affected(&mut self, freed: u128, mut touched: BTreeSet<Arc<str>>) -> Vec<String> {
        if freed > 0 {
            touched.append(&mut self.waiting);
        }
        touched.iter().filter_map(|uid| Some(self.nodes.get(uid)?.name.clone())).collect()
    }

    /// All that is wrong with the CIDRs of a node. A mere proposal is not reported.
    pub(super) fn problems(&self, uid: &str) -> Vec<Report> {
        let Some((uid, NodeEntry { holding: Holding::Assigned(claims), unusable, .. })) =
            self.nodes.get_key_value(uid)
        else {
            return Vec::new();
        };
        let shared = claims.iter().flat_map(|claim| self.shared(uid, claim));
        unusable.iter().cloned().chain(shared).collect()
    }

    fn shared(&self, uid: &Arc<str>, claim: &Occupied) -> Vec<Report> {
        let owner = BlockOwner::Node(Arc::clone(uid));
        let others = self.sets[claim.set].others(claim.blocks, &owner);
        let of_services = others.iter().any(|other| matches!(*other, BlockOwner::Services));
        let name = |other: &&BlockOwner| match other {
            BlockOwner::Services => None,
            BlockOwner::Node(other) => {
                let NodeEntry { name, holding, .. } = self.nodes.get(other)?;
                matches!(holding, Holding::Assigned(_)).then_some(name.as_str())
            }
        };
        let mut names: Vec<_> = others.iter().filter_map(name).collect();
        names.sort_unstable();
        let of_nodes = (!names.is_empty()).then(|| problem::shared(&claim.network, &names));
        of_services.then(|| problem::of_services(&claim.network)).into_iter().chain(of_nodes).collect()
    }
}

#[derive(Debug)]
struct NodeEntry {
    name: String,
    holding: Holding,
    /// Problems with podCIDRs outside our cluster CIDRs.
    unusable: Vec<Report>,
}

#[derive(Debug, PartialEq, Eq)]
enum Holding {
    Nothing,
    /// To be written, or written with unknown outcome.
    Proposed(Vec<Occupied>),
    /// As read from the Node.
    Assigned(Vec<Occupied>),
}

/// A network and the blocks it occupies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Occupied {
    /// The index of its cluster CIDR.
    set: usize,
    blocks: Blocks,
    network: IpNet,
}

impl Holding {
    fn claims(&self) -> &[Occupied] {
        match self {
            Self::Nothing => &[],
            Self::Proposed(claims) | Self::Assigned(claims) => claims,
        }
    }
}
