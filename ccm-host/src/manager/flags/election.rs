//! Whether replicas elect a leader, and at which pace.

use super::error::{FlagError, Mistakes};
use super::value;
use crate::election::Settings;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Leader election")]
pub(super) struct RawElection {
    /// Whether replicas elect a leader. Without it, run one replica, and never two during a roll-out.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "true",
        default_missing_value = "true"
    )]
    pub leader_elect: String,

    /// After this time without a renewal another replica takes the Lease. Whole seconds.
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    pub leader_elect_lease_duration: String,

    /// After this time without a renewal the leader stops all work and ends. Shorter than the lease duration.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub leader_elect_renew_deadline: String,

    /// Time between two tries to take or to renew the Lease.
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub leader_elect_retry_period: String,

    /// What the replicas lock. Only leases.
    #[arg(long, value_name = "STRING", default_value = "leases")]
    pub leader_elect_resource_lock: String,

    /// Name of the Lease.
    #[arg(long, value_name = "STRING", default_value = "cloud-controller-manager")]
    pub leader_elect_resource_name: String,

    /// Namespace of the Lease.
    #[arg(long, value_name = "STRING", default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
}

impl RawElection {
    /// None within: no election.
    pub(super) fn resolve(&self, mistakes: &mut Mistakes) -> Option<Option<Settings>> {
        let period =
            |mistakes: &mut Mistakes, name: &str, text: &str| mistakes.keep(value::period(name, text));
        let elect = mistakes.keep(value::switch("leader-elect", &self.leader_elect));
        let lease = period(mistakes, "leader-elect-lease-duration", &self.leader_elect_lease_duration);
        let renew = period(mistakes, "leader-elect-renew-deadline", &self.leader_elect_renew_deadline);
        let retry = period(mistakes, "leader-elect-retry-period", &self.leader_elect_retry_period);
        let mut refuse = |name: &str, text: &str, problem: &str, remedy: &str| {
            mistakes.add(FlagError::value(name, text, problem, remedy));
        };
        if self.leader_elect_resource_lock != "leases" {
            let text = &self.leader_elect_resource_lock;
            refuse("leader-elect-resource-lock", text, "is no kind of lock", "give leases");
        }
        for (name, text) in [
            ("leader-elect-resource-name", &self.leader_elect_resource_name),
            ("leader-elect-resource-namespace", &self.leader_elect_resource_namespace),
        ] {
            if text.is_empty() {
                refuse(name, text, "is empty", "leave the flag away for the default");
            }
        }
        let (lease, renew, retry) = (lease?, renew?, retry?);
        if lease.subsec_nanos() != 0 {
            let text = &self.leader_elect_lease_duration;
            refuse(
                "leader-elect-lease-duration",
                text,
                "is no whole number of seconds",
                "a Lease counts in seconds",
            );
        }
        if renew >= lease {
            let text = &self.leader_elect_renew_deadline;
            let problem = format!("is not below the lease duration of {lease:?}");
            refuse("leader-elect-renew-deadline", text, &problem, "else two replicas could lead at a time");
        }
        if renew <= retry.mul_f64(1.2) {
            let text = &self.leader_elect_retry_period;
            let problem = format!("leaves no time for a second try within the renew deadline of {renew:?}");
            refuse("leader-elect-retry-period", text, &problem, "give less than five sixths of it");
        }
        Some(elect?.then(|| Settings {
            name: self.leader_elect_resource_name.clone(),
            namespace: self.leader_elect_resource_namespace.clone(),
            lease_duration: lease,
            renew_deadline: renew,
            retry_period: retry,
        }))
    }
}
