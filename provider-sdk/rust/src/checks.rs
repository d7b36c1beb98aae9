//! Checks that every call passes before it reaches a method, in the contract's fixed order: peer (in
//! `server`), leader epoch, shape of the arguments (generated from the contract), backend sets by digest. Permissions in
//! the cloud and existence are left to the provider, in that order.

mod batch;
mod leadership;
mod mutation;
mod revision;
mod sets;

pub(crate) use batch::{Asked, settle};
pub(crate) use leadership::{Leadership, Term, stale};
pub(crate) use mutation::{Mutation, Subject, uid_of};
pub(crate) use revision::Revisions;
pub(crate) use sets::BackendSets;

use cloudprovider_proto::{Misshapen, RequestMessage};

use crate::provider::Advertised;
use crate::{ProviderError, Result};

/// Checks the request's shape against the contract.
pub(crate) fn shape(request: &impl RequestMessage, advertised: &Advertised) -> Result<()> {
    request.check_shape(&advertised.limits).map_err(|misshapen| match misshapen {
        Misshapen::Field { path, why } => ProviderError::invalid_argument_shape(&path, &why),
        Misshapen::TooMany { items, max } => ProviderError::batch_too_large(items, max),
    })
}

/// Clamps the page size to what is advertised, so that the methods need not.
pub(crate) fn fit(request: &mut impl RequestMessage, advertised: &Advertised) {
    if let Some(asked) = request.page_size() {
        let max = i32::try_from(advertised.limits.max_page_size).unwrap_or(i32::MAX);
        *asked = if *asked == 0 { max } else { (*asked).min(max) };
    }
}

#[cfg(test)]
mod tests;
