//! Durations sent by a provider, clamped to what the host accepts.

use std::time::Duration;

use super::{Findings, rule};

/// The range of durations that the host follows exactly; anything outside is clamped to it.
#[derive(Debug, Clone, Copy)]
pub(in crate::cloud) struct Bounds {
    shortest: Duration,
    longest: Duration,
}

const HOUR: u64 = 3600;

/// Retry delays: no busy loop, and at most an hour.
pub(in crate::cloud) const RETRY: Bounds = bounds(100, HOUR);
/// Call deadlines; each RPC also has its own maximum.
pub(in crate::cloud) const DEADLINE: Bounds = bounds(50, HOUR);
/// Time between two bookmarks of a watch.
pub(in crate::cloud) const BOOKMARK: Bounds = bounds(100, 600);
/// Maximum age of a watch stream.
pub(in crate::cloud) const WATCH_AGE: Bounds = bounds(1000, 24 * HOUR);
/// Time between two sweeps over all instances.
pub(in crate::cloud) const SWEEP: Bounds = bounds(10_000, 24 * HOUR);

const fn bounds(shortest_millis: u64, longest_seconds: u64) -> Bounds {
    Bounds { shortest: Duration::from_millis(shortest_millis), longest: Duration::from_secs(longest_seconds) }
}

/// Clamps a duration to its bounds; `None` if it is not positive.
pub(in crate::cloud) fn within(
    bounds: Bounds,
    given: prost_types::Duration,
    findings: &mut Findings,
) -> Option<Duration> {
    // prost negates negative durations, which overflows for `i64::MIN`.
    let given = Some(given).filter(|given| given.seconds >= 0)?;
    let given = Duration::try_from(given).ok().filter(|given| !given.is_zero())?;
    let kept = given.clamp(bounds.shortest, bounds.longest);
    if kept != given {
        findings.count(rule::DURATION_BOUNDS);
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// N7.
    #[test]
    fn durations_are_bounded_on_both_sides() {
        let rows = [
            ((0, 0), None, 0),
            ((-3, 0), None, 0),
            ((i64::MIN, i32::MIN), None, 0),
            ((0, 300), Some(Duration::from_millis(100)), 1),
            ((0, 100_000_000), Some(Duration::from_millis(100)), 0),
            ((7, 5), Some(Duration::new(7, 5)), 0),
            ((3600, 0), Some(Duration::from_secs(3600)), 0),
            ((3600, 1), Some(Duration::from_secs(3600)), 1),
            ((i64::MAX, i32::MAX), Some(Duration::from_secs(3600)), 1),
        ];
        for ((seconds, nanos), want, counted) in rows {
            let mut findings = Findings::default();
            let given = prost_types::Duration { seconds, nanos };
            assert_eq!(within(RETRY, given, &mut findings), want, "{given:?}");
            assert_eq!(findings.rules.len(), counted, "{given:?}");
        }
    }
}
