//! The change journal behind the watch: keys of instances in the order in which they changed.
//!
//! A resume token is a sequence number bound to the process epoch; a token older than the journal cannot be resumed.

use std::{collections::VecDeque, time::Duration};

use cloudprovider_sdk::{ProviderError, Result, proto::InstanceChanged};
use jiff::{SignedDuration, Timestamp};

use super::Instance;

/// Maximum number of changes kept.
const CAPACITY: usize = 100_000;

/// The journal.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Each with the uid of the instance's cluster; empty for every cluster.
    changes: VecDeque<(String, InstanceChanged)>,
    head: u64,
}

impl Journal {
    /// The sequence number of the newest change; the first is 1.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// An instance was created, changed or deleted.
    pub(super) fn record(&mut self, instance: &Instance) {
        self.head += 1;
        if self.changes.len() == CAPACITY {
            self.changes.pop_front();
        }
        let (provider_id, node_name) = (instance.provider_id.clone(), instance.name.clone());
        let change = InstanceChanged { provider_id, node_name };
        self.changes.push_back((instance.cluster_uid.clone(), change));
    }

    /// The changes of a cluster's instances after `sequence`.
    ///
    /// # Errors
    ///
    /// The journal does not reach back that far, or has not got there yet.
    pub(crate) fn after(&self, sequence: u64, cluster_uid: &str) -> Result<Vec<InstanceChanged>> {
        if sequence > self.head {
            return Err(ProviderError::invalid_token());
        }
        let oldest_kept = self.head - self.changes.len() as u64;
        if sequence < oldest_kept {
            return Err(ProviderError::resume_token_expired());
        }
        let skip = usize::try_from(sequence - oldest_kept).unwrap_or(usize::MAX);
        let seen = |(owner, _): &&(String, InstanceChanged)| owner.is_empty() || owner == cluster_uid;
        let changes = self.changes.iter().skip(skip).filter(seen);
        Ok(changes.map(|(_, change)| change.clone()).collect())
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
    use crate::cloud::{NewInstances, Settings, State};

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    fn instances(count: u32) -> Vec<Instance> {
        State::new(Settings::default()).create_instances(&NewInstances::many(count), at(0)).unwrap()
    }

    #[test]
    fn the_journal_gives_what_came_after_and_refuses_what_it_cannot_know() {
        let mut journal = Journal::default();
        instances(3).iter().for_each(|instance| journal.record(instance));
        let after = |sequence| {
            journal
                .after(sequence, "c1")
                .map(|changes| changes.into_iter().map(|change| change.node_name).collect::<Vec<_>>())
                .map_err(|error| error.reason())
        };
        let names = |names: &[&str]| Ok(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(after(0), names(&["node-0", "node-1", "node-2"]));
        assert_eq!(after(2), names(&["node-2"]));
        assert_eq!(after(3), names(&[]));
        assert_eq!(after(4), Err(ErrorReason::InvalidToken));
    }

    #[test]
    fn what_fell_out_of_the_journal_has_expired() {
        let mut journal = Journal::default();
        let instance = instances(1).remove(0);
        for _ in 0..CAPACITY + 2 {
            journal.record(&instance);
        }
        let expired = journal.after(1, "c1").map_err(|error| error.reason());
        assert_eq!(expired, Err(ErrorReason::ResumeTokenExpired));
        assert_eq!(journal.after(2, "c1").unwrap().len(), CAPACITY);
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
