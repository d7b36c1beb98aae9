//! The flags that control routes to pod CIDRs.

use std::time::Duration;

use clap::ArgAction;

use crate::flag;

/// One field a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Routes")]
#[group(skip)]
pub struct Settings {
    /// Keep routes in the cloud that lead the pod CIDRs of nodes to the nodes, where a provider can and --cluster-cidr
    /// is given.
    #[arg(long, value_name = "BOOL", default_value = "true", action = ArgAction::Set, value_parser = flag::switch)]
    pub configure_cloud_routes: bool,

    /// Time between two slow sweeps that look for routes that were changed behind our back; nodes that change are not
    /// waited for so long.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = flag::period)]
    pub route_reconciliation_period: Duration,
}
