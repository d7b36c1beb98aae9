//! The conformance suite of the CloudProvider contract: what a provider team runs against its provider.
//!
//! In: where a provider listens, and a scenario that says how to control the cloud behind it. Out: a verdict for each
//! case, and a report that names the sentence of the contract, what was expected and what was seen.
//!
//! - `contract`: the rules as the `.proto` files state them; `case` and `cases`: what is tested, as tables.
//! - `target`: the connection to the provider; `scenario`: hooks that control the cloud.
//! - `trial`: what a case works with; `ledger`: what was created and must be deleted.
//! - `invariants`: what no answer may break.
//! - `run`: runs one case after the other; `report`: their outcomes; `bench`: measures latency.
//!
//! The suite depends on the contract alone: it knows no vendor, no SDK and no host.

pub mod bench;
pub mod case;
pub mod cases;
pub mod cli;
pub mod contract;
pub mod invariants;
pub mod ledger;
pub mod provider;
pub mod report;
pub mod run;
pub mod scenario;
pub mod session;
pub mod target;
pub mod trial;
