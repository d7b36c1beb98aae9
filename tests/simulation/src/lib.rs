//! The host as it ships, between an in-memory apiserver and cloud, on a paused clock, under faults from a seed.

pub mod doubling;
pub mod ear;
pub mod fleet;
pub mod generate;
pub mod host;
pub mod invariants;
pub mod kubelets;
pub mod line;
pub mod oracle;
pub mod paces;
pub mod plan;
pub mod provider;
pub mod record;
pub mod run;
pub mod scale;
pub mod seen;
pub mod shrink;
pub mod telemetry;
pub mod world;
