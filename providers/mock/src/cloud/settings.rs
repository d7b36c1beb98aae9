//! What a cloud is told once, at its start; and how much the account may have.

use std::time::Duration;

use clap::{ArgAction, Parser};
use serde::{Deserialize, Serialize};

use crate::duration;

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
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
pub struct Settings {
    /// How every provider ID begins; also tells two mocks of one cluster apart.
    #[arg(skip)]
    pub provider_id_prefix: String,
    /// Zones of the cloud.
    #[arg(long, value_delimiter = ',', default_value = "mock-1a,mock-1b,mock-1c")]
    pub zones: Vec<String>,
    /// Region of all zones.
    #[arg(long, default_value = "mock-1")]
    pub region: String,
    /// What to say about a node without provider ID that was never known.
    #[arg(long, value_enum, default_value_t)]
    pub unknown_nodes: UnknownNodes,
    /// How long a new load balancer takes.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = duration::parse)]
    pub provisioning_delay: Duration,
    /// How long a deleted load balancer takes to go.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = duration::parse)]
    pub deletion_delay: Duration,
    /// How long a terminated machine is seen going.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    pub terminate_linger: Duration,
    /// The cloud allots no pod CIDRs.
    #[arg(long = "no-pod-cidrs", action = ArgAction::SetFalse)]
    pub allot_pod_cidrs: bool,
}

impl Default for Settings {
    fn default() -> Self {
        // The flags' own defaults: nothing was typed.
        Self { provider_id_prefix: "mock://".to_owned(), ..Self::parse_from([""]) }
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
