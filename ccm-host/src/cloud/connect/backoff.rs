//! The pause before the next attempt to connect.

use std::time::Duration;

/// Doubles from the first pause to the longest.
#[derive(Debug)]
pub(in crate::cloud) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(in crate::cloud) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    pub(in crate::cloud) fn reset(&mut self) {
        self.next = self.first;
    }

    /// The next pause; `random` in 0..1 takes away up to half of it.
    pub(in crate::cloud) fn pause(&mut self, random: f64, cap: Duration) -> Duration {
        let pause = self.next.min(cap);
        self.next = (self.next * 2).min(self.longest);
        pause.mul_f64(1.0 - random.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D27.
    #[test]
    fn pauses_double_up_to_the_longest_and_start_anew() {
        let second = Duration::from_secs(1);
        let mut backoff = Backoff::new(second / 10, 10 * second);
        let pauses: Vec<_> = (0..9).map(|_| backoff.pause(0.0, Duration::MAX).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(backoff.pause(0.0, second), second, "what is cheap to try is tried more often");
        backoff.reset();
        assert_eq!(backoff.pause(1.0, Duration::MAX), second / 20);
    }
}
