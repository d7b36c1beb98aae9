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

use crate::wire::{Method, Reply, Request, Shot, Turn};

/// All that changes the cloud.
const CHANGES: &[Method] = &[
    Method::EnsureLoadBalancer,
    Method::BatchUpdateLoadBalancers,
    Method::DeleteLoadBalancer,
    Method::BatchEnsureRoutes,
    Method::BatchDeleteRoutes,
    Method::AddSshKeyToAllInstances,
];

type Before = fn(&mut Request, &Shot<'_>) -> Turn;
type After = fn(&Request, &mut Reply, &Shot<'_>);

/// One way to break the contract.
pub struct Breach {
    /// The rule's tag, or a name of our own for a sentence that has none.
    pub rule: &'static str,
    /// In which ways, the first being the default; empty: in one way.
    pub variants: &'static [&'static str],
    /// What happens.
    pub what: &'static str,
    /// To which RPCs; empty: to all.
    pub(crate) methods: &'static [Method],
    pub(crate) before: Before,
    pub(crate) after: After,
}

impl std::fmt::Debug for Breach {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Breach")
            .field("rule", &self.rule)
            .field("variants", &self.variants)
            .finish_non_exhaustive()
    }
}

/// A breach that changes the request or keeps the work from being done.
const fn early(rule: &'static str, what: &'static str, methods: &'static [Method], before: Before) -> Breach {
    Breach { rule, variants: &[], what, methods, before, after: leave }
}

/// A breach that changes the answer.
const fn late(rule: &'static str, what: &'static str, methods: &'static [Method], after: After) -> Breach {
    Breach { rule, variants: &[], what, methods, before: go_on, after }
}

impl Breach {
    const fn ways(mut self, variants: &'static [&'static str]) -> Self {
        self.variants = variants;
        self
    }

    const fn and_late(mut self, after: After) -> Self {
        self.after = after;
        self
    }

    const fn and_early(mut self, before: Before) -> Self {
        self.before = before;
        self
    }
}

fn go_on(_request: &mut Request, _shot: &Shot<'_>) -> Turn {
    Turn::GoOn
}

fn leave(_request: &Request, _reply: &mut Reply, _shot: &Shot<'_>) {}

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
#[must_use]
pub fn named(rule: &str) -> Option<&'static Breach> {
    all().find(|breach| breach.rule == rule)
}
