//! The whole controller against an apiserver and a provider, both in memory.

mod cleaning;
mod cluster;
mod edits;
mod ensuring;
mod failing;
mod histories;
mod nodes;
mod orphans;
mod ownership;
mod restarting;
mod waiting;
mod world;
