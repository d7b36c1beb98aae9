//! Whether the Lease can be read and written, for `/readyz`.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock;

/// How long a problem must last to be reported: an apiserver restart is no news.
const TOLD_AFTER: Duration = Duration::from_secs(10);

/// Cheap to clone; all clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<Option<Trouble>>>);

#[derive(Debug)]
struct Trouble {
    at: Instant,
    since: Timestamp,
    why: String,
}

impl Health {
    pub(super) fn saw<T>(&self, answer: &Result<T>) {
        let mut trouble = self.0.lock();
        *trouble = match (answer, trouble.take()) {
            (Ok(_), _) => None,
            (Err(error), None) => {
                Some(Trouble { at: Instant::now(), since: clock::now(), why: format!("{error:#}") })
            }
            (Err(error), Some(before)) => Some(Trouble { why: format!("{error:#}"), ..before }),
        };
    }

    /// # Errors
    /// Since when the Lease cannot be read or written, and why.
    pub fn check(&self) -> Result<(), String> {
        match &*self.0.lock() {
            Some(trouble) if trouble.at.elapsed() >= TOLD_AFTER => {
                Err(format!("the Lease cannot be held since {:.0}: {}", trouble.since, trouble.why))
            }
            _ => Ok(()),
        }
    }
}
