//! All cases: a table for each subject.
//!
//! A case is a row: an id, its profile, the sentence that holds if it passes, the rules that it tests, and a function.
//! To add one, add a row and a function; `tests/rules.rs` checks that rules and cases cover each other.

mod abandoned;
mod adoption;
mod balancers;
mod batches;
mod built;
mod calls;
mod capabilities;
mod clusters;
pub mod costs;
mod deadlines;
mod deletion;
mod description;
mod discovery;
mod errors;
mod foreign;
mod health;
mod idempotency;
mod instances;
mod leadership;
mod leaks;
mod lists;
mod machines;
mod mixed;
mod paging;
mod reasons;
mod refusals;
mod revisions;
mod rich;
mod routes;
mod security;
mod sets;
mod shapes;
mod sizes;
mod skew;
mod ssh_keys;
mod status;
mod trouble;
mod updates;
mod volumes;
mod watch;
mod watch_tokens;

use crate::case::Case;

/// All cases, in the order in which they run.
pub fn all() -> impl Iterator<Item = &'static Case> {
    let subjects: [&'static [Case]; 40] = [
        discovery::CASES,
        capabilities::CASES,
        status::CASES,
        health::CASES,
        security::CASES,
        instances::CASES,
        description::CASES,
        machines::CASES,
        calls::CASES,
        trouble::CASES,
        batches::CASES,
        mixed::CASES,
        watch::CASES,
        watch_tokens::CASES,
        ssh_keys::CASES,
        balancers::CASES,
        built::CASES,
        rich::CASES,
        refusals::CASES,
        idempotency::CASES,
        abandoned::CASES,
        revisions::CASES,
        updates::CASES,
        sets::CASES,
        deletion::CASES,
        adoption::CASES,
        routes::CASES,
        shapes::CASES,
        foreign::CASES,
        lists::CASES,
        paging::CASES,
        volumes::CASES,
        clusters::CASES,
        leadership::CASES,
        deadlines::CASES,
        sizes::CASES,
        skew::CASES,
        errors::CASES,
        reasons::CASES,
        leaks::CASES,
    ];
    subjects.into_iter().flatten()
}
