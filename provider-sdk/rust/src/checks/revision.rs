//! Refuses overtaken requests: wanted state of a Service that is older than the latest accepted.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::Subject;
use crate::{ProviderError, Result};

/// The number of Services remembered. Beyond it, the least recently changed ones are forgotten, as after a
/// restart.
const REMEMBERED: usize = 1 << 16;

/// The highest accepted revision of each Service.
#[derive(Debug, Default)]
pub(crate) struct Revisions(Mutex<Accepted>);

#[derive(Debug, Default)]
struct Accepted {
    highest: HashMap<Subject, Entry>,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    revision: u64,
    touched: u64,
}

impl Revisions {
    /// Accepts a revision, or refuses it if it is lower than the highest accepted one. An equal revision
    /// repeats the same call; 0 is neither refused nor recorded.
    pub(crate) fn accept(&self, subject: &Subject, revision: u64) -> Result<()> {
        if revision == 0 {
            return Ok(());
        }
        let mut accepted = self.0.lock();
        accepted.clock += 1;
        let touched = accepted.clock;
        let entry = accepted.highest.entry(subject.clone()).or_insert(Entry { revision, touched });
        if revision < entry.revision {
            return Err(ProviderError::stale_revision(&subject.name)
                .with_metadata("revision", revision.to_string())
                .with_metadata("accepted", entry.revision.to_string()));
        }
        *entry = Entry { revision, touched };
        accepted.forget_the_oldest();
        Ok(())
    }
}

impl Accepted {
    fn forget_the_oldest(&mut self) {
        if self.highest.len() <= REMEMBERED {
            return;
        }
        let mut touched: Vec<u64> = self.highest.values().map(|entry| entry.touched).collect();
        let (_, middle, _) = touched.select_nth_unstable(REMEMBERED / 2);
        let middle = *middle;
        self.highest.retain(|_, entry| entry.touched >= middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_the_newest_stay() {
        let revisions = Revisions::default();
        for service in 0..=REMEMBERED {
            revisions.accept(&Subject::service("c", &service.to_string()), 9).unwrap();
        }
        assert!(revisions.0.lock().highest.len() <= REMEMBERED);
        revisions.accept(&Subject::service("c", "0"), 1).unwrap();
        revisions.accept(&Subject::service("c", &REMEMBERED.to_string()), 1).unwrap_err();
    }
}
