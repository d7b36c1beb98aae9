//! A token bucket.

use std::time::Duration;

use cloudprovider_proto::v1alpha1 as pb;
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) rate: pb::RateLimit,
    tokens: f64,
    at: Instant,
}

/// Whether the rate is finite and positive.
pub(super) fn is_valid(rate: &pb::RateLimit) -> bool {
    rate.per_second.is_finite() && rate.per_second > 0.0
}

impl Bucket {
    pub(super) fn full(rate: pb::RateLimit, now: Instant) -> Self {
        Self { rate, tokens: size(&rate), at: now }
    }

    /// Takes a token, or returns the wait until there is one.
    pub(super) fn take(&mut self, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate.per_second).min(size(&self.rate));
        self.at = now;
        // Time counts in whole nanoseconds, so a token may lack the last bit.
        if self.tokens >= 1.0 - 1e-6 {
            self.tokens -= 1.0;
            return None;
        }
        let wait = (1.0 - self.tokens) / self.rate.per_second;
        Some(Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX).max(Duration::from_millis(1)))
    }
}

fn size(rate: &pb::RateLimit) -> f64 {
    f64::from(rate.burst.max(1))
}
