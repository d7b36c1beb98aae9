//! The cloud's settings, fixed at its start; and the account's quota.

use std::time::Duration;

use clap::{ArgAction, Parser};
use serde::{Deserialize, Serialize};

use crate::duration;

/// The answer for a node that the cloud never knew and that has no provider ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum UnknownNodes {
    /// The cloud is certain: the instance is absent.
    #[default]
    Absent,
    /// The node belongs to another cloud.
    NotOwned,
}

/// The cloud's settings. Not in the state file: the current flags win.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
pub struct Settings {
    /// Name of the provider.
    #[arg(long, default_value = "mock")]
    pub name: String,
    /// Zones of the cloud.
    #[arg(long, value_delimiter = ',', default_value = "mock-1a,mock-1b,mock-1c")]
    pub zones: Vec<String>,
    /// Region of all zones.
    #[arg(long, default_value = "mock-1")]
    pub region: String,
    /// Answer for a node without provider ID that the cloud never knew.
    #[arg(long, value_enum, default_value_t)]
    pub unknown_nodes: UnknownNodes,
    /// Minimum duration of every call to the cloud.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = duration::parse)]
    pub latency: Duration,
    /// How long creating or changing a load balancer takes.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = duration::parse)]
    pub provisioning_delay: Duration,
    /// How long deleting a load balancer takes.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = duration::parse)]
    pub deletion_delay: Duration,
    /// How long a terminated instance stays visible.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    pub terminate_linger: Duration,
    /// The cloud allocates no pod CIDRs.
    #[arg(long = "no-pod-cidrs", action = ArgAction::SetFalse)]
    pub allot_pod_cidrs: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self::parse_from([""])
    }
}

impl Settings {
    /// Prefix of every provider ID; distinguishes two mocks of one cluster.
    pub fn provider_id_prefix(&self) -> String {
        format!("{}://", self.name)
    }
}

/// Upper bounds; absent means unlimited.
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
