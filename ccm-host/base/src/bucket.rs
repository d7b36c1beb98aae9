//! A token bucket: a burst, then a steady rate.
//!
//! In: the rate, the size, and the time of each draw. Out: how long to wait for a token.

use std::time::Duration;

use tokio::time::Instant;

/// The bucket. Time is an argument.
#[derive(Debug, Clone)]
pub struct Bucket {
    per_second: f64,
    burst: f64,
    /// Negative: what is drawn ahead of time.
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// Holds at most `burst` tokens, and so many now. `per_second` is finite and positive.
    pub fn full(per_second: f64, burst: f64, now: Instant) -> Self {
        Self { per_second, burst, tokens: burst, at: now }
    }

    /// Tokens per second, and how many it holds at most.
    pub fn rate(&self) -> (f64, f64) {
        (self.per_second, self.burst)
    }

    /// Takes a token, or returns the wait until there is one.
    pub fn take(&mut self, now: Instant) -> Option<Duration> {
        self.refill(now);
        // Time counts in whole nanoseconds, so a token may lack the last bit.
        if self.tokens >= 1.0 - 1e-6 {
            self.tokens -= 1.0;
            return None;
        }
        Some(self.time_for(1.0 - self.tokens).max(Duration::from_millis(1)))
    }

    /// Takes a token ahead of time: it counts after this wait, and after those of all who came before.
    pub fn reserve(&mut self, now: Instant) -> Duration {
        self.refill(now);
        self.tokens -= 1.0;
        self.time_for(-self.tokens)
    }

    /// Returns a token that was reserved and not used.
    pub fn give_back(&mut self) {
        self.tokens += 1.0;
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.per_second).min(self.burst);
        self.at = now;
    }

    fn time_for(&self, tokens: f64) -> Duration {
        Duration::try_from_secs_f64((tokens / self.per_second).max(0.0)).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_goes_at_once_and_then_one_at_a_time() {
        let now = Instant::now();
        let mut bucket = Bucket::full(2.0, 2.0, now);
        assert_eq!([bucket.take(now), bucket.take(now), bucket.take(now)], [None, None, Some(SECOND / 2)]);
        assert_eq!(bucket.take(now), Some(SECOND / 2), "who waits has taken nothing");
        assert_eq!(bucket.take(now + SECOND / 2), None);
        let later = now + 100 * SECOND;
        assert_eq!([bucket.take(later), bucket.take(later)], [None, None], "it holds no more than the burst");
        assert!(bucket.take(later).is_some());
    }

    #[test]
    fn tokens_are_reserved_in_order_and_given_back() {
        let now = Instant::now();
        let mut bucket = Bucket::full(1.0, 1.0, now);
        assert_eq!([(); 3].map(|()| bucket.reserve(now)), [Duration::ZERO, SECOND, 2 * SECOND]);
        bucket.give_back();
        assert_eq!(bucket.reserve(now), 2 * SECOND);
    }
}
