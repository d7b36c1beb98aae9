//! Lets loops follow a provider: until it can be asked, as its status changes, and from sweep to sweep.

use std::{future::pending, time::Duration};

use crate::cloud::{Provider, ProviderStatus};

/// Maximum jitter as a share of the period, so that several providers or hosts do not list in step.
const JITTER: f64 = 0.1;

/// The pause until the next sweep: the period plus jitter.
#[must_use]
pub fn resync(period: Duration) -> Duration {
    period.mul_f64(1.0 + JITTER * fastrand::f64())
}

/// Returns once the provider has introduced itself and can be asked.
pub async fn askable(provider: &dyn Provider) {
    let mut status = provider.status();
    while provider.info().is_none() || status.borrow_and_update().is_away() {
        if status.changed().await.is_err() {
            pending::<()>().await;
        }
    }
}

/// Calls `look` whenever all objects of the provider should be looked at: at each new connection, and after a gap in its
/// reports. Never ends.
pub async fn at_each_sweep(provider: &dyn Provider, look: impl Fn()) {
    let mut sweeps = provider.sweeps();
    sweeps.mark_unchanged();
    while sweeps.changed().await.is_ok() {
        look();
    }
    pending::<()>().await;
}

/// Calls `tell` with the previous and the current status after each change, for as long as it is polled. Both are the same
/// if it changed and changed back in between.
pub async fn follow_status(provider: &dyn Provider, mut tell: impl FnMut(&ProviderStatus, &ProviderStatus)) {
    let mut status = provider.status();
    let mut before = status.borrow_and_update().clone();
    while status.changed().await.is_ok() {
        let now = status.borrow_and_update().clone();
        tell(&before, &now);
        before = now;
    }
    // The provider lives as long as the process; there is nothing left to follow.
    pending::<()>().await;
}
