//! How load balancers are kept in step, as the flags say.

use std::time::Duration;

use clap::ArgAction;

use ccm_base::flag;

/// One field per flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Services")]
#[group(skip)]
pub struct Settings {
    /// Number of Services whose load balancers are created or changed concurrently, per provider, within its own limits; as many are removed.
    #[arg(long, value_name = "INT", default_value = "16", value_parser = workers)]
    pub concurrent_service_syncs: usize,

    /// Time between two sweeps for load balancers that drifted or have no owner any more.
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = flag::period)]
    pub load_balancer_resync_period: Duration,

    /// Adopt load balancers that carry only the name that a former controller gave them. Without it, their Services get
    /// an Event and the load balancers stay untouched.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    pub adopt_load_balancers: bool,

    /// Delete load balancers of this cluster whose Service is gone: those that two consecutive sweeps found without one
    /// and that carry the uids of this cluster and of that Service. Without it, they are only reported.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    pub delete_orphaned_load_balancers: bool,

    /// Take a node out of the load balancers as soon as it is cordoned, or tainted to be deleted by the cluster autoscaler
    /// or Karpenter. Without it, it leaves them with the next change of nodes, and its connections survive until then.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    pub exclude_draining_nodes: bool,
}

fn workers(text: &str) -> Result<usize, flag::Wrong> {
    flag::workers(text, "no load balancer would ever be built")
}
