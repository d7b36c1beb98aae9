//! The flags that select the nodes to manage, and limit how fast they are initialised and refreshed.

use std::time::Duration;

use clap::ArgAction;

use ccm_base::flag::{self, Wrong};
use ccm_kube::selector::{LabelSelector, SelectorError};

/// One field per flag.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Nodes")]
#[group(skip)]
pub struct Settings {
    /// Number of nodes to initialise and write concurrently.
    #[arg(long, value_name = "INT", default_value = "32", value_parser = workers)]
    pub concurrent_node_syncs: usize,

    /// Number of nodes that the periodic refresh writes concurrently; 0 means the same as --concurrent-node-syncs.
    #[arg(long, value_name = "INT", default_value = "0", value_parser = status_workers)]
    pub concurrent_node_status_updates: usize,

    /// Time between two refreshes of all node addresses.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = flag::period)]
    pub node_status_update_frequency: Duration,

    /// Label selector of the nodes that this host manages; it neither asks about nor writes other nodes.
    #[arg(long, value_name = "SELECTOR", default_value = "", value_parser = selector)]
    pub node_selector: LabelSelector,

    /// Show what the cloud plans to do to an instance (a reboot, a reclaimed spot instance) as the condition
    /// MaintenancePlanned of its Node. Nothing is drained or deleted because of it.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    pub planned_maintenance_condition: bool,
}

impl Settings {
    /// Maximum nodes written at once by the refresh.
    #[must_use]
    pub fn status_workers(&self) -> usize {
        match self.concurrent_node_status_updates {
            0 => self.concurrent_node_syncs,
            count => count,
        }
    }
}

fn workers(text: &str) -> Result<usize, Wrong> {
    flag::workers(text, "no node would ever be initialised")
}

fn status_workers(text: &str) -> Result<usize, Wrong> {
    if text == "0" { Ok(0) } else { flag::workers(text, "is zero") }
}

fn selector(text: &str) -> Result<LabelSelector, Wrong> {
    text.parse().map_err(|error: SelectorError| {
        Wrong::new(error.to_string(), "write it as for kubectl -l, for example \"pool in (a,b),!unmanaged\"")
    })
}
