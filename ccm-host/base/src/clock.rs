//! The wall clock, for dates that other processes read or wrote.
//!
//! Time within this process (ages, deadlines, pauses) is measured with `tokio::time`, which tests pause. A simulation
//! pauses that clock, too, and makes this one follow it, so that both agree.

use std::{cell::Cell, time::Duration};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

thread_local! {
    static FOLLOWED: Cell<Option<(Instant, Timestamp)>> = const { Cell::new(None) };
}

pub fn now() -> Timestamp {
    let Some((since, start)) = FOLLOWED.get() else { return Timestamp::now() };
    let passed = SignedDuration::try_from(since.elapsed()).unwrap_or(SignedDuration::MAX);
    start.checked_add(passed).unwrap_or(Timestamp::MAX)
}

/// The time from `earlier` to `later`; none if a clock that is ahead wrote the earlier date.
pub fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    later.duration_since(earlier).try_into().unwrap_or_default()
}

/// The date of a moment on this process's own clock, for people.
pub fn at(moment: Instant) -> Timestamp {
    let (now, here) = (now(), Instant::now());
    let later = now.checked_add(moment.saturating_duration_since(here)).unwrap_or(Timestamp::MAX);
    later.checked_sub(here.saturating_duration_since(moment)).unwrap_or(Timestamp::MIN)
}

/// Makes this thread's time start at `start` and follow tokio's clock. For simulations, which run on one thread.
pub fn follow_tokio(start: Timestamp) {
    FOLLOWED.set(Some((Instant::now(), start)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_in_the_future_is_no_time_ago() {
        let (early, late) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(90).unwrap());
        assert_eq!((between(early, late), between(late, early)), (Duration::from_secs(90), Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn the_wall_clock_follows_a_paused_one() {
        assert!(now() > Timestamp::UNIX_EPOCH, "the system's");
        follow_tokio(Timestamp::UNIX_EPOCH);
        tokio::time::advance(std::time::Duration::from_secs(90)).await;
        assert_eq!(now().as_second(), 90);
        FOLLOWED.set(None);
    }
}
