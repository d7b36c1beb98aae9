//! Waits for conditions.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::Instant;

/// The interval between two checks.
pub const STEP: Duration = Duration::from_millis(50);

/// Generous, for loaded machines; a wait ends as soon as its condition holds.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Waits until `look` returns a value; `what` says what was awaited.
pub async fn until<T>(what: &str, look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    until_within(LIMIT, what, look).await
}

/// Like [`until`], with another limit.
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
