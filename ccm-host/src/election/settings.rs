//! The flags of leader election: on or off, and its timing.

use std::time::Duration;

use clap::ArgAction;

use crate::flag::{self, Mistakes, Wrong, duration::text};

/// One field per flag.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Leader election")]
#[group(skip)]
pub struct Settings {
    /// Elect a leader among replicas. Without it, run a single replica, and never two during a rollout.
    #[arg(long, value_name = "BOOL", default_value = "true", action = ArgAction::Set, value_parser = flag::switch)]
    pub leader_elect: bool,

    /// Time without renewal after which another replica takes the Lease, in whole seconds.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = whole_seconds)]
    pub leader_elect_lease_duration: Duration,

    /// Time without renewal after which the leader stops all work and exits. Must be shorter than the lease duration.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = flag::period)]
    pub leader_elect_renew_deadline: Duration,

    /// Time between two attempts to acquire or renew the Lease.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = flag::period)]
    pub leader_elect_retry_period: Duration,

    /// Kind of the lock; only leases is supported.
    #[arg(long, value_name = "STRING", default_value = "leases", value_parser = leases)]
    pub leader_elect_resource_lock: String,

    /// Name of the Lease.
    #[arg(long, value_name = "STRING", default_value = "cloud-controller-manager", value_parser = filled)]
    pub leader_elect_resource_name: String,

    /// Namespace of the Lease.
    #[arg(long, value_name = "STRING", default_value = "kube-system", value_parser = filled)]
    pub leader_elect_resource_namespace: String,
}

impl Settings {
    /// Checks the flags against each other.
    pub fn check(&self, mistakes: &mut Mistakes) {
        const LEASE: &str = "leader-elect-lease-duration";
        const RENEW: &str = "leader-elect-renew-deadline";
        const RETRY: &str = "leader-elect-retry-period";
        let (lease, renew) = (self.leader_elect_lease_duration, self.leader_elect_renew_deadline);
        let retry = self.leader_elect_retry_period;
        if renew >= lease && mistakes.spare(&[LEASE, RENEW]) {
            let problem = format!("is not below the lease duration of {lease:?}");
            mistakes.refuse(RENEW, text(renew), problem, "else two replicas could lead at a time");
        }
        if renew <= retry.mul_f64(1.2) && mistakes.spare(&[RENEW, RETRY]) {
            let problem = format!("leaves no time for a second try within the renew deadline of {renew:?}");
            mistakes.refuse(RETRY, text(retry), problem, "give less than five sixths of it");
        }
    }
}

fn whole_seconds(text: &str) -> Result<Duration, Wrong> {
    let period = flag::period(text)?;
    match period.subsec_nanos() {
        0 => Ok(period),
        _ => Err(Wrong::new("is no whole number of seconds", "a Lease counts in seconds")),
    }
}

fn leases(text: &str) -> Result<String, Wrong> {
    match text {
        "leases" => Ok(text.to_owned()),
        _ => Err(Wrong::new("is no kind of lock", "give leases")),
    }
}

fn filled(text: &str) -> Result<String, Wrong> {
    match text {
        "" => Err(Wrong::new("is empty", "leave the flag away for the default")),
        _ => Ok(text.to_owned()),
    }
}
