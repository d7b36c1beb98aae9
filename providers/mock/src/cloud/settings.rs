//! What a cloud is told once, at its start; and how much the account may have.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What the cloud answers for a node that it never knew and that has no provider ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum UnknownNodes {
    /// It is sure about itself: the machine is absent.
    #[default]
    Absent,
    /// It takes the node for another cloud's.
    NotOwned,
}

/// What a cloud is told once. Not part of the state file: the flags of the present start win.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How every provider ID begins; also tells two mocks of one cluster apart.
    pub provider_id_prefix: String,
    /// Zones, for machines that name none.
    pub zones: Vec<String>,
    /// Region of all zones.
    pub region: String,
    /// What to say about nodes never known.
    pub unknown_nodes: UnknownNodes,
    /// How long a new balancer takes.
    pub provisioning_delay: Duration,
    /// How long a removed balancer takes to go.
    pub deletion_delay: Duration,
    /// How long a terminated machine is seen going.
    pub terminate_linger: Duration,
    /// Whether pod CIDRs are allotted to machines.
    pub allot_pod_cidrs: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            provider_id_prefix: "mock://".into(),
            zones: vec!["mock-1a".into(), "mock-1b".into(), "mock-1c".into()],
            region: "mock-1".into(),
            unknown_nodes: UnknownNodes::default(),
            provisioning_delay: Duration::ZERO,
            deletion_delay: Duration::ZERO,
            terminate_linger: Duration::from_secs(2),
            allot_pod_cidrs: true,
        }
    }
}

/// Upper bounds; absent: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Balancers of all clusters.
    pub max_balancers: Option<u32>,
    /// Routes of all clusters.
    pub max_routes: Option<u32>,
    /// Addresses of balancers.
    pub max_addresses: Option<u32>,
}
