//! Checks that every call passes before it reaches a method, in the contract's fixed order: peer (in
//! `server`), leader epoch, shape of the arguments, backend sets by digest. Permissions in the cloud and
//! existence are left to the provider, in that order.

mod batch;
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
pub(crate) use leadership::{Leadership, Term, stale};
pub(crate) use mutation::{Mutation, Subject, uid_of};
pub(crate) use revision::Revisions;
pub(crate) use sets::BackendSets;

use crate::Result;
use crate::proto::{ClusterRef, Fencing};
use crate::provider::Advertised;

/// A request on behalf of a cluster: what all of them share, and how each checks its own shape.
pub(crate) trait Shape {
    /// The cluster on whose behalf the host calls.
    fn cluster(&self) -> Option<&ClusterRef>;

    /// The leader's epoch; `None` for a read.
    fn fencing(&self) -> Option<&Fencing> {
        None
    }

    /// The number of items in a batch; `None` if the request is not a batch.
    fn items(&self) -> Option<usize> {
        None
    }

    /// Checks the request's shape against the contract.
    fn check(&self, advertised: &Advertised) -> Result<()>;

    /// Clamps optional values, so that the methods need not.
    fn fit(&mut self, _advertised: &Advertised) {}

    /// Fills in the backend sets that the request refers to by digest.
    fn complete(&mut self, _sets: &BackendSets) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
