//! A row in the tables of breaches: a rule and its breach.

use crate::{
    contract::{Message, Method},
    scene::{Reply, Shot, Turn},
};

type Ask = fn(&mut Message, &Shot<'_>);
type Before = fn(&mut Message, &Shot<'_>) -> Turn;
type After = fn(&Message, &mut Reply, &Shot<'_>);

/// One way to break the contract.
#[derive(Debug)]
pub struct Breach {
    /// The rule's tag, or our own name for a sentence without a tag.
    pub rule: &'static str,
    /// The variants, the first being the default; empty if there is only one way.
    pub variants: &'static [&'static str],
    /// What happens.
    pub what: &'static str,
    /// The RPCs it can affect; empty means all.
    pub(crate) methods: &'static [Method],
    /// Changes the request.
    pub(crate) ask: Ask,
    /// May prevent the work.
    pub(crate) before: Before,
    /// Changes the answer.
    pub(crate) after: After,
}

/// A breach that affects all RPCs and does nothing yet.
pub(super) const fn breach(rule: &'static str, what: &'static str) -> Breach {
    let (ask, before, after): (Ask, Before, After) = (|_, _| {}, |_, _| Turn::GoOn, |_, _, _| {});
    Breach { rule, variants: &[], what, methods: &[], ask, before, after }
}

impl Breach {
    pub(super) const fn to(self, methods: &'static [Method]) -> Self {
        Self { methods, ..self }
    }

    pub(super) const fn ways(self, variants: &'static [&'static str]) -> Self {
        Self { variants, ..self }
    }

    /// It changes the request.
    pub(super) const fn asked(self, ask: Ask) -> Self {
        Self { ask, ..self }
    }

    /// It may prevent the work.
    pub(super) const fn early(self, before: Before) -> Self {
        Self { before, ..self }
    }

    /// It changes the answer.
    pub(super) const fn late(self, after: After) -> Self {
        Self { after, ..self }
    }
}
