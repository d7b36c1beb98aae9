//! What follows from a change of the ledger: who is to be tried again, and what is wrong with whom now.

use std::{collections::BTreeSet, sync::Arc};

use super::{Claim, Entry, Holding, Ledger};
use crate::controllers::node_ipam::{cidr_set::Owner, problem::Problem};

/// What follows from a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Effects {
    /// Names of nodes that waited for a block: there are free ones.
    pub(in super::super) wake: Vec<String>,
    /// Everything that is wrong with these nodes' CIDRs now.
    pub(in super::super) reports: Vec<Report>,
}

/// Everything that is wrong with the CIDRs of one node.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Report {
    pub(in super::super) uid: Arc<str>,
    pub(in super::super) name: String,
    pub(in super::super) problems: Vec<Problem>,
}

impl Ledger {
    /// With so many blocks free that were not, and something changed for these nodes.
    pub(super) fn effects(&mut self, freed: u128, touched: BTreeSet<Arc<str>>) -> Effects {
        let woken = if freed > 0 { std::mem::take(&mut self.waiting) } else { BTreeSet::new() };
        let name = |uid: &Arc<str>| Some(self.nodes.get(uid)?.name.clone());
        let wake = woken.iter().filter_map(name).collect();
        let reports = touched.into_iter().filter_map(|uid| {
            let Entry { name, holding, unusable } = self.nodes.get(&uid)?;
            // What was only proposed is nobody's business yet.
            let Holding::Assigned(claims) = holding else { return None };
            let shared = claims.iter().flat_map(|claim| self.shared(&uid, claim));
            let problems = unusable.iter().cloned().chain(shared).collect();
            Some(Report { name: name.clone(), problems, uid })
        });
        Effects { wake, reports: reports.collect() }
    }

    fn shared(&self, uid: &Arc<str>, claim: &Claim) -> Vec<Problem> {
        let owner = Owner::Node(Arc::clone(uid));
        let network = claim.network;
        let others = self.pools[claim.pool].others(claim.blocks, &owner);
        let problem = |other: &Owner| match other {
            Owner::Services => Some(Problem::OfServices(network)),
            Owner::Node(other) => {
                let Entry { name, holding, .. } = self.nodes.get(other)?;
                matches!(holding, Holding::Assigned(_))
                    .then(|| Problem::Shared { network, node: name.clone() })
            }
        };
        others.into_iter().filter_map(problem).collect()
    }
}
