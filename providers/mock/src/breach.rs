//! Breaches of the contract, one for each rule that a provider can break, under the rule's own tag.
//!
//! Most show at once. Some need an occasion: a rule about errors shows when there is an error, one about work that goes
//! on when work goes on. Combine these with another fault, or with the state of the cloud.

mod batch;
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

pub use errors::CANARY;
pub(crate) use instances::leave_out;

use crate::wire::{Method, Reply, Request, Shot, Turn};

type Ask = fn(&mut Request, &Shot<'_>);
type Before = fn(&mut Request, &Shot<'_>) -> Turn;
type After = fn(&Request, &mut Reply, &Shot<'_>);

/// One way to break the contract.
#[derive(Debug)]
pub struct Breach {
    /// The rule's tag, or a name of our own for a sentence that has none.
    pub rule: &'static str,
    /// In which ways, the first being the default; empty: in one way.
    pub variants: &'static [&'static str],
    /// What happens.
    pub what: &'static str,
    /// To which RPCs; empty: to all.
    pub(crate) methods: &'static [Method],
    /// Changes the request.
    pub(crate) ask: Ask,
    /// May keep the work from being done.
    pub(crate) before: Before,
    /// Changes the answer.
    pub(crate) after: After,
}

const fn breach(rule: &'static str, what: &'static str, methods: &'static [Method]) -> Breach {
    let (ask, before, after): (Ask, Before, After) = (|_, _| {}, |_, _| Turn::GoOn, |_, _, _| {});
    Breach { rule, variants: &[], what, methods, ask, before, after }
}

/// A breach that changes the request.
const fn asked(rule: &'static str, what: &'static str, methods: &'static [Method], ask: Ask) -> Breach {
    Breach { ask, ..breach(rule, what, methods) }
}

/// A breach that may keep the work from being done.
const fn early(rule: &'static str, what: &'static str, methods: &'static [Method], before: Before) -> Breach {
    Breach { before, ..breach(rule, what, methods) }
}

/// A breach that changes the answer.
const fn late(rule: &'static str, what: &'static str, methods: &'static [Method], after: After) -> Breach {
    Breach { after, ..breach(rule, what, methods) }
}

impl Breach {
    const fn ways(self, variants: &'static [&'static str]) -> Self {
        Self { variants, ..self }
    }

    const fn and_late(self, after: After) -> Self {
        Self { after, ..self }
    }

    const fn and_early(self, before: Before) -> Self {
        Self { before, ..self }
    }

    const fn and_asked(self, ask: Ask) -> Self {
        Self { ask, ..self }
    }
}

/// All breaches, by subject.
pub fn all() -> impl Iterator<Item = &'static Breach> {
    let subjects: [&'static [Breach]; 11] = [
        discovery::BREACHES,
        batch::BREACHES,
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
pub fn named(rule: &str) -> Option<&'static Breach> {
    all().find(|breach| breach.rule == rule)
}
