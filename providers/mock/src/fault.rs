//! Faults that calls can meet.
//!
//! In: `error,reason=RATE_LIMITED,retry-after=2s,method=EnsureLoadBalancer,times=3`, or the same as a JSON object. Out: a
//! valid [`Fault`]. `kinds` says what each does to a call; `breach` has the breaches of the contract.

mod kinds;
mod registry;
mod text;

use serde::{Deserialize, Serialize};

use crate::breach;

pub use crate::effect::{Effect, Options};

pub use kinds::KINDS;
pub use registry::{FaultStatus, Faults};

/// A fault and the calls it meets. Parsing text, or JSON with `TryFrom`, validates it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fault {
    /// What it does, for example `hang`.
    pub kind: String,
    /// The RPC it meets; by default every RPC that it can affect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The nodes, Services, routes or volumes it targets, by name or id; a trailing `*` makes a prefix. Empty targets all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
    /// How many calls it meets; unlimited by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// How many calls pass before the first it meets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip: Option<u32>,
    /// The share of calls it meets, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// The keys of its kind.
    #[serde(flatten)]
    pub options: Options,
}

impl Fault {
    /// What it does to a call; `None` if it is not valid.
    pub(crate) fn effect(&self) -> Option<&'static Effect> {
        match self.kind.as_str() {
            "breach" => breach::named(self.options.text("rule")),
            kind => KINDS.iter().find(|known| known.name == kind),
        }
    }

    /// A few words for the call log.
    pub fn label(&self) -> String {
        let option = |key, before: &str| match self.options.text(key) {
            "" => String::new(),
            value => format!("{before}{value}"),
        };
        let what = ["reason", "code", "state", "rule"].map(|key| option(key, " ")).concat();
        format!("{}{what}{}", self.kind, option("variant", "/"))
    }
}
