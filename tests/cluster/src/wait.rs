//! Waiting on conditions.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::Instant;

/// Between two looks.
pub const STEP: Duration = Duration::from_millis(50);

/// Generous: a loaded machine is slow, and a condition that holds ends the wait at once.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Waits until `look` gives a value; `what` says what was waited for.
pub async fn until<T>(what: &str, look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    until_within(LIMIT, what, look).await
}

/// As [`until`], with another limit.
pub async fn until_within<T>(
    limit: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = look().await? {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            bail!("waited {limit:?} in vain: {what}");
        }
        tokio::time::sleep(STEP).await;
    }
}
