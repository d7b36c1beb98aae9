//! Decides when to pass on changes of nodes: the first of a burst at once, the others less often the longer it lasts.
//!
//! In: when changes came. Out: when they are due. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// Changes within this time of the first urgent one join it: creating one node takes several writes.
const GATHER: Duration = Duration::from_millis(50);
/// Longest wait of changes that are not urgent; a pause of this length ends a burst.
const QUIET: Duration = Duration::from_secs(1);
/// Longest wait of any change, in a storm.
const LONGEST: Duration = Duration::from_secs(10);

/// Changes that wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gathered {
    /// When the first of them came.
    pub(super) first: Instant,
    /// When the last of them came.
    pub(super) last: Instant,
    /// When the first urgent one came.
    pub(super) urgent: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The current burst: its first change, and when changes were last passed on.
    burst: Option<(Instant, Instant)>,
}

impl Pace {
    /// When to pass these changes on.
    pub(super) fn due(&self, gathered: &Gathered) -> Instant {
        let settled = gathered.first + QUIET;
        let soon = gathered.urgent.map_or(settled, |urgent| settled.min(urgent + GATHER));
        match self.burst_of(gathered) {
            Some((begun, departed)) => {
                let apart = (departed - begun).clamp(QUIET, LONGEST);
                soon.max((departed + apart).min(gathered.last + QUIET))
            }
            None => soon,
        }
    }

    /// Records that these changes were passed on.
    pub(super) fn departed(&mut self, gathered: &Gathered, now: Instant) {
        let begun = self.burst_of(gathered).map_or(gathered.first, |(begun, _)| begun);
        self.burst = Some((begun, now));
    }

    fn burst_of(&self, gathered: &Gathered) -> Option<(Instant, Instant)> {
        self.burst.filter(|(_, departed)| gathered.first <= *departed + QUIET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When changes that come at these milliseconds are passed on.
    fn departures(changes: impl IntoIterator<Item = (u64, bool)>) -> Vec<u64> {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut pace = Pace::default();
        let mut gathered: Option<Gathered> = None;
        let mut departures = Vec::new();
        let mut depart = |gathered: &mut Option<Gathered>, pace: &mut Pace, until: Option<Instant>| {
            if let Some(waiting) = *gathered
                && until.is_none_or(|until| pace.due(&waiting) < until)
            {
                let due = pace.due(&waiting);
                pace.departed(&waiting, due);
                departures.push(u64::try_from((due - start).as_millis()).unwrap());
                *gathered = None;
            }
        };
        for (time, urgent) in changes {
            let now = at(time);
            depart(&mut gathered, &mut pace, Some(now));
            let waiting = gathered.get_or_insert(Gathered { first: now, last: now, urgent: None });
            waiting.last = now;
            if urgent {
                waiting.urgent.get_or_insert(now);
            }
        }
        depart(&mut gathered, &mut pace, None);
        departures
    }

    /// SW-7, E7.
    #[test]
    fn the_first_change_goes_at_once_and_a_storm_is_gathered() {
        let every = |apart: u64, until: u64| (0..until / apart).map(move |step| (step * apart, true));
        assert_eq!(departures([(0, true)]), [50]);
        assert_eq!(departures([(0, true), (20, true), (49, true)]), [50], "one node is several writes");
        assert_eq!(departures([(0, true), (100, true), (900, true)]), [50, 1_050]);
        assert_eq!(departures([(0, true), (1_051, true)]), [50, 1_101], "after a quiet second: at once");
        assert_eq!(
            departures(every(100, 60_000)),
            [50, 1_050, 2_100, 4_200, 8_400, 16_800, 26_800, 36_800, 46_800, 56_800, 60_900]
        );
    }

    /// The change of a node being initialised waits for the rest, but not forever.
    #[test]
    fn what_is_about_to_change_again_waits_for_it() {
        assert_eq!(departures([(0, false)]), [1_000]);
        assert_eq!(departures([(0, false), (200, true)]), [250]);
        assert_eq!(departures([(0, false), (990, true)]), [1_000]);
    }
}
