//! How load balancers are kept in step.

use std::time::Duration;

use super::error::Mistakes;
use super::value;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Services")]
pub(super) struct RawServices {
    /// Services whose load balancers are worked on at the same time, at each provider.
    #[arg(long, value_name = "INT", default_value = "16")]
    pub concurrent_service_syncs: String,

    /// Time between two slow sweeps that look for balancers that drifted or that nobody owns any more.
    #[arg(long, value_name = "DURATION", default_value = "30m")]
    pub load_balancer_resync_period: String,

    /// Take over balancers that carry only the name that a former controller gave them. Without it such a Service gets an
    /// Event, and its balancer stays as it is.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    pub adopt_load_balancers: String,

    /// Remove balancers of this cluster whose Service is gone: those that two sweeps in a row found without one and that
    /// carry the uids of this cluster and of that Service. Without it they are only reported.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    pub delete_orphaned_load_balancers: String,
}

/// How load balancers are kept in step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSettings {
    /// Services worked on at the same time, 1 to 1000.
    pub workers: usize,
    /// Longer than zero.
    pub resync_period: Duration,
    /// Take over balancers of a former controller.
    pub adopt: bool,
    /// Remove balancers that have no Service any more.
    pub delete_orphans: bool,
}

impl RawServices {
    pub(super) fn resolve(&self, mistakes: &mut Mistakes) -> Option<ServiceSettings> {
        let workers = mistakes.keep(value::workers(
            "concurrent-service-syncs",
            &self.concurrent_service_syncs,
            "no load balancer would ever be built",
        ));
        let resync =
            mistakes.keep(value::period("load-balancer-resync-period", &self.load_balancer_resync_period));
        let adopt = mistakes.keep(value::switch("adopt-load-balancers", &self.adopt_load_balancers));
        let delete_orphans = mistakes
            .keep(value::switch("delete-orphaned-load-balancers", &self.delete_orphaned_load_balancers));
        Some(ServiceSettings {
            workers: workers?,
            resync_period: resync?,
            adopt: adopt?,
            delete_orphans: delete_orphans?,
        })
    }
}
