//! Whether the Lease can be read and written, for `/readyz`.

use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;

use crate::outage::Outage;

/// Cheap to clone; all clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<Outage>>);

impl Health {
    pub(super) fn saw<T>(&self, answer: &Result<T>) {
        let mut outage = self.0.lock();
        match answer {
            Ok(_) => drop(outage.ended()),
            Err(error) => drop(outage.failed(format!("{error:#}"))),
        }
    }

    /// # Errors
    /// Since when the Lease cannot be read or written, and why.
    pub fn check(&self) -> Result<(), String> {
        let lasting = self.0.lock().lasting();
        lasting.map_or(Ok(()), |outage| Err(format!("the Lease cannot be held {outage}")))
    }
}
