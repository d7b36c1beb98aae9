//! The effects of a change of the ledger: which nodes to retry, and what is wrong with which nodes now.

use std::{collections::BTreeSet, sync::Arc};

use super::{Claim, Entry, Holding, Ledger};
use crate::controllers::node_ipam::{cidr_set::Owner, problem::Problem};

/// The effects of a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Effects {
    /// Names of nodes that waited for a block, now that some are free.
    pub(in super::super) wake: Vec<String>,
    /// The current problems of each node affected.
    pub(in super::super) reports: Vec<Report>,
}

/// All current problems with the CIDRs of one node.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Report {
    pub(in super::super) uid: Arc<str>,
    pub(in super::super) name: String,
    pub(in super::super) problems: Vec<Problem>,
}

impl Ledger {
    /// The effects, given the number of blocks freed and the nodes affected.
    pub(super) fn effects(&mut self, freed: u128, touched: BTreeSet<Arc<str>>) -> Effects {
        let woken = if freed > 0 { std::mem::take(&mut self.waiting) } else { BTreeSet::new() };
        let name = |uid: &Arc<str>| Some(self.nodes.get(uid)?.name.clone());
        let wake = woken.iter().filter_map(name).collect();
        let reports = touched.into_iter().filter_map(|uid| {
            let Entry { name, holding, unusable } = self.nodes.get(&uid)?;
            // A mere proposal is not reported yet.
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
