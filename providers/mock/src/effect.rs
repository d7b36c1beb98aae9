//! What a fault does to the calls that it meets: a row in the tables of kinds and of breaches.

use crate::{
    contract::{Message, Method},
    scene::{Reply, Shot, Turn},
};

type Ask = fn(&mut Message, &Shot<'_>);
type Before = fn(&mut Message, &Shot<'_>) -> Turn;
type After = fn(&Message, &mut Reply, &Shot<'_>);

/// A kind of fault, or one way to break the contract.
#[derive(Debug)]
pub struct Effect {
    /// The kind; of a breach, the rule's tag, or our own name for a sentence without a tag.
    pub name: &'static str,
    /// The keys of a kind; the variants of a breach, the first being the default.
    pub choices: &'static [&'static str],
    /// What happens.
    pub what: &'static str,
    /// The RPCs it can affect; empty means all.
    pub(crate) methods: &'static [Method],
    /// Changes the request.
    pub(crate) ask: Ask,
    /// May prevent the work.
    pub(crate) before: Before,
    /// Changes the answer, or one frame of a stream.
    pub(crate) after: After,
}

/// An effect on all RPCs that does nothing yet.
pub(crate) const fn effect(name: &'static str, what: &'static str) -> Effect {
    let (ask, before, after): (Ask, Before, After) = (|_, _| {}, |_, _| Turn::GoOn, |_, _, _| {});
    Effect { name, choices: &[], what, methods: &[], ask, before, after }
}

impl Effect {
    /// Whether it can affect an RPC.
    pub(crate) fn fits(&self, method: Method) -> bool {
        self.methods.is_empty() || self.methods.contains(&method)
    }

    pub(crate) const fn to(self, methods: &'static [Method]) -> Self {
        Self { methods, ..self }
    }

    pub(crate) const fn ways(self, choices: &'static [&'static str]) -> Self {
        Self { choices, ..self }
    }

    /// It changes the request.
    pub(crate) const fn asked(self, ask: Ask) -> Self {
        Self { ask, ..self }
    }

    /// It may prevent the work.
    pub(crate) const fn early(self, before: Before) -> Self {
        Self { before, ..self }
    }

    /// It changes the answer.
    pub(crate) const fn late(self, after: After) -> Self {
        Self { after, ..self }
    }
}
