//! The change journal behind the watch: keys of instances in the order in which they changed.
//!
//! A resume token is a sequence number bound to the process epoch; a token older than the journal cannot be resumed.

use std::{collections::VecDeque, time::Duration};

use cloudprovider_sdk::{ProviderError, Result};
use jiff::{SignedDuration, Timestamp};

/// Maximum number of changes kept.
const CAPACITY: usize = 100_000;

/// An instance was created, changed or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its sequence number in the journal, from 1.
    pub sequence: u64,
    /// Provider ID of the instance.
    pub provider_id: String,
    /// Its name.
    pub name: String,
    /// Uid of its cluster; empty for every cluster.
    pub cluster_uid: String,
}

/// The journal.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    changes: VecDeque<Change>,
    head: u64,
}

impl Journal {
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    pub(super) fn record(&mut self, provider_id: &str, name: &str, cluster_uid: &str) {
        self.head += 1;
        if self.changes.len() == CAPACITY {
            self.changes.pop_front();
        }
        self.changes.push_back(Change {
            sequence: self.head,
            provider_id: provider_id.to_owned(),
            name: name.to_owned(),
            cluster_uid: cluster_uid.to_owned(),
        });
    }

    /// All changes after `sequence`.
    pub(super) fn after(&self, sequence: u64) -> Result<Vec<Change>> {
        if sequence > self.head {
            return Err(ProviderError::invalid_token());
        }
        let oldest_kept = self.head - self.changes.len() as u64;
        if sequence < oldest_kept {
            return Err(ProviderError::resume_token_expired());
        }
        let skip = usize::try_from(sequence - oldest_kept).unwrap_or(usize::MAX);
        Ok(self.changes.iter().skip(skip).cloned().collect())
    }
}

/// The text of resume tokens of one process epoch: `w.EPOCH.SEQUENCE.ISSUED`.
pub(crate) fn resume_token(epoch: &str, sequence: u64, issued: Timestamp) -> String {
    format!("w.{epoch}.{sequence}.{}", issued.as_millisecond())
}

/// The sequence in a token that this epoch issued and that is not too old.
pub(crate) fn read_resume_token(epoch: &str, token: &str, now: Timestamp, validity: Duration) -> Result<u64> {
    let parts: Vec<_> = token.split('.').collect();
    let parsed = match parts[..] {
        ["w", its_epoch, sequence, issued] if its_epoch == epoch => {
            let issued = issued.parse().ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
            sequence.parse().ok().zip(issued)
        }
        _ => None,
    };
    let (sequence, issued) = parsed.ok_or_else(ProviderError::invalid_token)?;
    let age = now.duration_since(issued);
    let limit = SignedDuration::try_from(validity).unwrap_or(SignedDuration::MAX);
    if age > limit { Err(ProviderError::resume_token_expired()) } else { Ok(sequence) }
}

#[cfg(test)]
mod tests {
    use cloudprovider_sdk::proto::ErrorReason;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    #[test]
    fn the_journal_gives_what_came_after_and_refuses_what_it_cannot_know() {
        let mut journal = Journal::default();
        for number in 1..=3 {
            journal.record(&format!("mock://z/{number}"), "n", "");
        }
        let after = |sequence| {
            journal
                .after(sequence)
                .map(|changes| changes.iter().map(|change| change.sequence).collect::<Vec<_>>())
                .map_err(|error| error.reason())
        };
        assert_eq!(after(0), Ok(vec![1, 2, 3]));
        assert_eq!(after(2), Ok(vec![3]));
        assert_eq!(after(3), Ok(vec![]));
        assert_eq!(after(4), Err(ErrorReason::InvalidToken));
    }

    #[test]
    fn what_fell_out_of_the_journal_has_expired() {
        let mut journal = Journal::default();
        for _ in 0..CAPACITY + 2 {
            journal.record("mock://z/1", "n", "");
        }
        assert_eq!(journal.after(1).map_err(|error| error.reason()), Err(ErrorReason::ResumeTokenExpired));
        assert_eq!(journal.after(2).unwrap().len(), CAPACITY);
    }

    #[test]
    fn tokens_are_bound_to_epoch_and_age() {
        let minute = Duration::from_secs(60);
        let token = resume_token("e1", 7, at(0));
        let cases = [
            ("same epoch, fresh", "e1", token.as_str(), 60_000, Ok(7)),
            ("same epoch, old", "e1", token.as_str(), 60_001, Err(ErrorReason::ResumeTokenExpired)),
            ("another epoch", "e2", token.as_str(), 0, Err(ErrorReason::InvalidToken)),
            ("garbage", "e1", "garbage", 0, Err(ErrorReason::InvalidToken)),
            ("longer", "e1", "w.e1.7.0.0", 0, Err(ErrorReason::InvalidToken)),
        ];
        for (name, epoch, token, now, wanted) in cases {
            let read = read_resume_token(epoch, token, at(now), minute);
            assert_eq!(read.map_err(|error| error.reason()), wanted, "{name}");
        }
    }
}
