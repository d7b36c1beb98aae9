//! The maximum of the numbers seen within a window of time. Pure.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// The running maximum. Holds only numbers that may still become the largest.
#[derive(Debug)]
pub(super) struct Peak {
    window: Duration,
    /// Later entries are smaller.
    seen: VecDeque<(Instant, usize)>,
}

impl Peak {
    pub(super) fn within(window: Duration) -> Self {
        Self { window, seen: VecDeque::new() }
    }

    pub(super) fn note(&mut self, now: Instant, number: usize) {
        while self.seen.back().is_some_and(|(_, before)| *before <= number) {
            self.seen.pop_back();
        }
        self.seen.push_back((now, number));
        let window = self.window;
        // The newest entry is never too old, so that something is always left.
        while self.seen.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= window) {
            self.seen.pop_front();
        }
    }

    /// The largest number; zero if none was seen.
    pub(super) fn largest(&self) -> usize {
        self.seen.front().map_or(0, |(_, number)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_largest_of_the_last_while() {
        let start = Instant::now();
        let mut peak = Peak::within(Duration::from_secs(10));
        assert_eq!(peak.largest(), 0);
        let rows = [
            (0, 5, 5),
            (1, 9, 9),
            (2, 4, 9),
            (3, 6, 9),
            (10, 1, 9),
            (11, 1, 6),
            (13, 1, 1),
            (14, 7, 7),
            (40, 2, 2),
        ];
        for (second, number, want) in rows {
            peak.note(start + Duration::from_secs(second), number);
            assert_eq!(peak.largest(), want, "at {second} s");
        }
    }
}
