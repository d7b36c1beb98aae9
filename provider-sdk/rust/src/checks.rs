//! What is checked of every call before a method sees it, in the contract's fixed order: peer (in `server`), leader
//! epoch, shape of the arguments, sets of backends by their digests. Rights in the cloud and existence are the provider's
//! to check, in this order.

mod batch;
mod fencing;
mod instances;
mod leadership;
mod load_balancers;
mod mutation;
mod others;
mod parts;
mod revision;
mod routes;
mod sets;

pub(crate) use batch::settle;
pub(crate) use fencing::Fences;
pub(crate) use leadership::{Leadership, Term, stale};
pub(crate) use mutation::{Mutation, Subject, uid_of};
pub(crate) use revision::Revisions;
pub(crate) use sets::BackendSets;

use crate::Result;
use crate::proto::{ClusterRef, Fencing};
use crate::provider::Advertised;

/// A request on behalf of a cluster: what every one of them has, and what its own shape must be.
pub(crate) trait Shape {
    /// On whose behalf.
    fn cluster(&self) -> Option<&ClusterRef>;

    /// The leader's epoch of a mutation; nothing for a read.
    fn fencing(&self) -> Option<&Fencing> {
        None
    }

    /// How many items a batch has; nothing for a call about one thing.
    fn items(&self) -> Option<usize> {
        None
    }

    /// Is the request as the contract wants it?
    fn check(&self, advertised: &Advertised) -> Result<()>;

    /// Puts optional values within bounds, so that each method need not.
    fn fit(&mut self, _advertised: &Advertised) {}

    /// Fills in the sets of backends that are named by their digests.
    fn complete(&mut self, _sets: &BackendSets) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
