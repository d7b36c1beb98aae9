//! How fast AWS lets an account call.
//!
//! In: an action's bucket and the time. Out: how long to wait. Sizes and rates are the documented defaults of EC2 ("Request
//! throttling for the Amazon EC2 API") and of Elastic Load Balancing ("Request throttling for the Elastic Load Balancing API"). Everything in the account and region draws from the same buckets, so ours only
//! keeps this process from being the one that empties them.

use std::time::Duration;

use tokio::time::Instant;

/// Calls that leave in time arrive closer together now and then.
const MARGIN: f64 = 0.95;

/// A token bucket, full at first.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    size: f64,
    per_second: f64,
    /// How much it has at `at`; less than zero if calls wait for what it will have.
    tokens: f64,
    at: Option<Instant>,
}

impl Bucket {
    pub(crate) const fn new(size: u32, per_second: f64) -> Self {
        Self { size: size as f64, per_second: per_second * MARGIN, tokens: size as f64, at: None }
    }

    /// How long the next call would wait.
    pub(crate) fn wait(&mut self, now: Instant) -> Duration {
        let passed = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        self.tokens = (self.tokens + passed * self.per_second).min(self.size);
        self.at = Some(now);
        Duration::from_secs_f64((1.0 - self.tokens).max(0.0) / self.per_second)
    }

    /// A call is made, or will be when its wait is over.
    pub(crate) fn take(&mut self) {
        self.tokens -= 1.0;
    }

    /// AWS says that its own bucket is empty.
    pub(crate) fn drain(&mut self) {
        self.tokens = self.tokens.min(0.0);
    }

    pub(crate) fn tokens(&self) -> f64 {
        self.tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_wait_their_turn_once_the_bucket_is_empty() {
        let now = Instant::now();
        let mut bucket = Bucket::new(2, 4.0);
        let mut waits = Vec::new();
        for _ in 0..4 {
            waits.push(bucket.wait(now).as_millis());
            bucket.take();
        }
        assert_eq!(waits, [0, 0, 263, 526], "four a second, less the margin");
        // Never more than its size.
        assert_eq!(bucket.wait(now + Duration::from_secs(60)), Duration::ZERO);
        assert_eq!(bucket.tokens(), 2.0);
        bucket.drain();
        assert_eq!(bucket.wait(now + Duration::from_secs(60)).as_millis(), 263);
    }
}
