//! The whole controller against an apiserver and a provider, both in memory.

mod believing;
mod cleaning;
mod clouds;
mod cluster;
mod edits;
mod ensuring;
mod explaining;
mod failing;
mod histories;
mod metrics;
mod moving;
mod nodes;
mod orphans;
mod ownership;
mod queueing;
mod restarting;
mod waiting;
mod world;
