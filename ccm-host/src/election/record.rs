//! Decides what a replica does about the Lease. Pure.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};

/// A replica's next step on the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// There is none: create it.
    Create,
    /// Its holder released it, or has not renewed it for too long.
    Take,
    /// This replica holds it.
    Renew,
    /// Another replica holds it.
    Wait,
}

/// `unchanged` is how long the Lease has not changed, by this replica's own clock: no other clock is trusted.
pub(super) fn decide(spec: Option<&LeaseSpec>, me: &str, unchanged: Duration) -> Step {
    let Some(spec) = spec else { return Step::Create };
    match spec.holder_identity.as_deref().unwrap_or_default() {
        "" => Step::Take,
        holder if holder == me => Step::Renew,
        _ if unchanged > runs_out_after(spec) => Step::Take,
        _ => Step::Wait,
    }
}

/// How long a holder keeps the Lease without renewing it.
pub(super) fn runs_out_after(spec: &LeaseSpec) -> Duration {
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Duration::from_secs(seconds.unwrap_or_default())
}

/// The fencing epoch of a Lease: it grows with every change of holder.
pub(super) fn epoch(lease: &Lease) -> u64 {
    let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
    u64::try_from(transitions).unwrap_or_default() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_is_taken_from_nobody_who_renews_it() {
        let seconds = Duration::from_secs;
        for (spec, unchanged, step) in [
            (None, 0, Step::Create),
            (Some(held_by("")), 0, Step::Take),
            (Some(held_by("me")), 0, Step::Renew),
            (Some(held_by("me")), 60, Step::Renew),
            (Some(held_by("other")), 15, Step::Wait),
            (Some(held_by("other")), 16, Step::Take),
        ] {
            assert_eq!(decide(spec.as_ref(), "me", seconds(unchanged)), step, "{spec:?} {unchanged}");
        }
    }
}
