//! Counts the important writes that are waiting or in flight.
//!
//! Writers hold a [`Held`] for the length of a write; less urgent work (events) waits for [`WritePressure::idle`].

use tokio::sync::watch;

/// A shared count of important writes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WritePressure(watch::Sender<usize>);

impl Default for WritePressure {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl WritePressure {
    /// Counts one write until the returned value is dropped.
    #[must_use]
    pub fn hold(&self) -> Held {
        self.0.send_modify(|held| *held += 1);
        Held(self.clone())
    }

    /// The number of writes waiting or in flight.
    #[must_use]
    pub fn held(&self) -> usize {
        *self.0.borrow()
    }

    /// Returns when no write is waiting or in flight.
    pub async fn idle(&self) {
        // The sender lives in self, so the channel cannot be closed here.
        let _closed = self.0.subscribe().wait_for(|held| *held == 0).await.is_err();
    }
}

#[derive(Debug)]
pub struct Held(WritePressure);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.0.send_modify(|held| *held = held.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn idle_waits_for_the_last_write() {
        let pressure = WritePressure::default();
        pressure.idle().await;
        let (first, second) = (pressure.hold(), pressure.hold());
        let mut idle = Box::pin(pressure.idle());
        assert!(idle.as_mut().now_or_never().is_none());
        drop(first);
        assert!(idle.as_mut().now_or_never().is_none(), "one of two is still held");
        drop(second);
        idle.await;
        assert_eq!(pressure.held(), 0);
    }
}
