//! The flags of the route controller.

use std::time::Duration;

use ccm_base::flag;
use clap::ArgAction;

/// The flags that control routes to pod CIDRs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Routes")]
#[group(skip)]
pub struct Settings {
    /// Maintain a route in the cloud to each node's pod CIDRs, if a provider supports routes and --cluster-cidr is set.
    #[arg(long, value_name = "BOOL", default_value = "true", action = ArgAction::Set, value_parser = flag::switch)]
    pub configure_cloud_routes: bool,

    /// Time between two sweeps for routes that somebody else changed; changes of nodes are handled at once.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = flag::period)]
    pub route_reconciliation_period: Duration,
}
