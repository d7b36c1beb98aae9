//! A token bucket for requests, like client-go's flow control: a burst, then a steady rate per second.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// The bucket. Cheap to clone; all clones draw from the same one.
#[derive(Debug, Clone)]
pub(super) struct Limiter {
    per_second: f64,
    burst: f64,
    bucket: Arc<Mutex<Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    /// Negative: the number of waiting callers.
    tokens: f64,
    at: Instant,
}

impl Limiter {
    /// `None` without a limit.
    pub(super) fn new(qps: f32, burst: u32) -> Option<Self> {
        (qps > 0.0).then(|| {
            let burst = f64::from(burst.max(1));
            let bucket = Bucket { tokens: burst, at: Instant::now() };
            Self { per_second: f64::from(qps), burst, bucket: Arc::new(Mutex::new(bucket)) }
        })
    }

    /// Waits for a token; callers are served in order.
    pub(super) async fn acquire(&self) {
        let wait = self.take(Instant::now());
        if !wait.is_zero() {
            let turn = Turn(self);
            sleep(wait).await;
            std::mem::forget(turn);
        }
    }

    fn take(&self, now: Instant) -> Duration {
        let mut bucket = self.bucket.lock();
        let refill = now.saturating_duration_since(bucket.at).as_secs_f64() * self.per_second;
        bucket.tokens = (bucket.tokens + refill).min(self.burst) - 1.0;
        bucket.at = now;
        Duration::try_from_secs_f64(-bucket.tokens / self.per_second).unwrap_or_default()
    }
}

/// Given back when the caller gives up before its turn: a request that was never sent must not delay others.
struct Turn<'a>(&'a Limiter);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.bucket.lock().tokens += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_before_its_turn_delays_nobody() {
        let limiter = Limiter::new(1.0, 1).unwrap();
        limiter.acquire().await;
        let given_up = (0..10).map(|_| tokio::time::timeout(Duration::from_millis(100), limiter.acquire()));
        assert!(futures::future::join_all(given_up).await.iter().all(Result::is_err));
        let begun = Instant::now();
        limiter.acquire().await;
        assert!(begun.elapsed() <= Duration::from_secs(1), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_burst_passes_and_the_rest_waits_its_turn() {
        let limiter = Limiter::new(10.0, 2).unwrap();
        let now = Instant::now();
        let waits: Vec<_> = (0..4).map(|_| limiter.take(now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 100, 200]);
        assert_eq!(limiter.take(now + Duration::from_secs(60)).as_millis(), 0, "the bucket refills");
    }

    #[test]
    fn no_rate_is_no_limit() {
        assert!(Limiter::new(0.0, 5).is_none());
        assert!(Limiter::new(-1.0, 5).is_none());
    }
}
