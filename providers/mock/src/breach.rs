//! Breaches of the contract, one for each rule that a provider can break, named by the rule's tag.
//!
//! Most show at once. Some need an occasion: a rule about errors needs an error, one about work in progress needs work in
//! progress. Combine these with another fault, or with the state of the cloud.

mod caches;
mod discovery;
mod errors;
mod instances;
mod lists;
mod load_balancers;
mod message;
mod ownership;
mod routes;
mod sets;

use crate::effect::Effect;

pub use errors::CANARY;
pub(crate) use errors::all_absent;
pub(crate) use instances::leave_out;
pub(crate) use lists::halve;

/// All breaches, by subject.
pub fn all() -> impl Iterator<Item = &'static Effect> {
    let subjects: [&'static [Effect]; 10] = [
        discovery::BREACHES,
        instances::BREACHES,
        caches::BREACHES,
        lists::BREACHES,
        load_balancers::BREACHES,
        sets::BREACHES,
        routes::BREACHES,
        ownership::BREACHES,
        errors::BREACHES,
        message::BREACHES,
    ];
    subjects.into_iter().flatten()
}

/// The breach of this rule.
pub fn named(rule: &str) -> Option<&'static Effect> {
    all().find(|breach| breach.name == rule)
}
