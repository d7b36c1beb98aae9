//! How routes to pod CIDRs are kept in step.

use std::time::Duration;

use super::error::Mistakes;
use super::value;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Routes")]
pub(super) struct RawRoutes {
    /// Keep routes in the cloud that lead the pod CIDRs of nodes to the nodes, where a provider can and --cluster-cidr
    /// is given.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "true",
        default_missing_value = "true"
    )]
    pub configure_cloud_routes: String,

    /// Time between two slow sweeps that look for routes that were changed behind our back; nodes that change are not
    /// waited for so long.
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub route_reconciliation_period: String,
}

/// How routes are kept in step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteSettings {
    /// Whether the controller runs at all.
    pub configure: bool,
    /// Longer than zero.
    pub resync_period: Duration,
}

impl RawRoutes {
    pub(super) fn resolve(&self, mistakes: &mut Mistakes) -> Option<RouteSettings> {
        let configure = mistakes.keep(value::switch("configure-cloud-routes", &self.configure_cloud_routes));
        let period =
            mistakes.keep(value::period("route-reconciliation-period", &self.route_reconciliation_period));
        Some(RouteSettings { configure: configure?, resync_period: period? })
    }
}
