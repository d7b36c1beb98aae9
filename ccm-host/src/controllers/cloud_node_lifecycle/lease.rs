//! Checks the provider's answer against a kubelet's Lease. Pure: time is an argument.
//!
//! A kubelet renews its Lease every quarter of the Lease's duration: every 10 s at default settings.

use jiff::Timestamp;

use crate::kube::patch::NodeLease;

/// Whether a kubelet is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// It renewed its Lease after its instance was denied, and has not fallen silent since.
    Alive,
    /// It has missed two renewals, or has no Lease.
    Silent,
    /// Not known yet: two renewals will tell.
    Unsettled,
}

/// Judges by its Lease a kubelet whose instance the provider denied at `denied_at`.
pub(super) fn life(lease: Option<&NodeLease>, denied_at: Timestamp, now: Timestamp) -> Life {
    let Some(NodeLease { renewed: Some(renewed), duration }) = lease else { return Life::Silent };
    let two_renewals = jiff::SignedDuration::try_from(*duration / 2).unwrap_or(jiff::SignedDuration::MAX);
    if now.duration_since(*renewed) >= two_renewals {
        Life::Silent
    } else if *renewed > denied_at {
        Life::Alive
    } else {
        Life::Unsettled
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// N9, E1.
    #[test]
    fn a_lease_that_was_renewed_after_the_denial_proves_life() {
        let at = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
        let lease = |renewed| NodeLease { renewed, duration: Duration::from_secs(40) };
        let rows = [
            ("renewed after the denial", Some(lease(Some(at(101)))), Life::Alive),
            ("by a clock that is ahead", Some(lease(Some(at(500)))), Life::Alive),
            ("renewed before it, and not due again", Some(lease(Some(at(95)))), Life::Unsettled),
            ("one renewal late", Some(lease(Some(at(91)))), Life::Unsettled),
            ("two renewals late", Some(lease(Some(at(90)))), Life::Silent),
            ("never renewed", Some(lease(None)), Life::Silent),
            ("no Lease", None, Life::Silent),
        ];
        for (what, lease, want) in rows {
            assert_eq!(life(lease.as_ref(), at(100), at(110)), want, "{what}");
        }
        let once = lease(Some(at(101)));
        assert_eq!(life(Some(&once), at(100), at(121)), Life::Silent, "alive then, and silent now");
    }
}
