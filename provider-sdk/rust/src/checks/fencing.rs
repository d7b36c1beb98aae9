//! Distinguishes a former leader from the current one by what this process remembers.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::proto::Fencing;
use crate::{ProviderError, Result};

/// The highest epoch seen in each scope. A scope is a Lease; a new scope appears only if somebody deleted the
/// Lease.
#[derive(Debug, Default)]
pub(crate) struct Fences(Mutex<HashMap<String, u64>>);

impl Fences {
    /// Refuses an epoch below the highest of the same scope. Epoch 0 (leader election is off) is neither
    /// refused nor recorded.
    pub(crate) fn check(&self, fencing: &Fencing) -> Result<()> {
        if fencing.epoch == 0 {
            return Ok(());
        }
        let mut seen = self.0.lock();
        let highest = seen.entry(fencing.scope.clone()).or_default();
        if fencing.epoch < *highest {
            return Err(ProviderError::stale_leader(&fencing.scope)
                .with_metadata("epoch", fencing.epoch.to_string())
                .with_metadata("highest", highest.to_string()));
        }
        *highest = fencing.epoch;
        Ok(())
    }
}
