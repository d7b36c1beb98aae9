//! Durations that a provider says: from nanoseconds to ages, and what the host makes of them.

use std::time::Duration;

use super::{Findings, rule};

/// What a duration must be for the host to follow it to the letter; what is shorter or longer counts as the bound.
#[derive(Debug, Clone, Copy)]
pub(in crate::cloud) struct Bounds {
    shortest: Duration,
    longest: Duration,
}

const HOUR: u64 = 3600;

/// When to try again: not in a busy loop, and not so late that everybody has forgotten about it.
pub(in crate::cloud) const RETRY: Bounds = bounds(100, HOUR);
/// Of a call; each RPC has its own maximum besides.
pub(in crate::cloud) const DEADLINE: Bounds = bounds(50, HOUR);
/// Between two bookmarks of a watch.
pub(in crate::cloud) const BOOKMARK: Bounds = bounds(100, 600);
/// Of a watch stream.
pub(in crate::cloud) const WATCH_AGE: Bounds = bounds(1000, 24 * HOUR);
/// Between two sweeps over all instances.
pub(in crate::cloud) const SWEEP: Bounds = bounds(10_000, 24 * HOUR);

const fn bounds(shortest_millis: u64, longest_seconds: u64) -> Bounds {
    Bounds { shortest: Duration::from_millis(shortest_millis), longest: Duration::from_secs(longest_seconds) }
}

/// A duration within its bounds; none if it is not positive.
pub(in crate::cloud) fn within(
    bounds: Bounds,
    given: prost_types::Duration,
    findings: &mut Findings,
) -> Option<Duration> {
    // prost negates what is negative, and the least number has no opposite.
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
