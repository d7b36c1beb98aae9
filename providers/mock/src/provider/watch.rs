//! The stream of changed instances, read from the journal, so that a slow reader loses no key.

use std::time::Duration;

use cloudprovider_sdk::{InstanceWatch, Result, WatchEvent, proto::InstanceChanged};
use futures::{StreamExt as _, stream};
use tokio::sync::watch;

use super::Honest;
use crate::cloud::{Change, read_resume_token, resume_token};

struct Reader {
    honest: Honest,
    cluster: String,
    /// All changes up to here were sent.
    sequence: u64,
    moves: watch::Receiver<u64>,
    /// How often a fresh token is sent; its age counts from then.
    pace: Duration,
}

/// Opens a stream at the token, or at the present.
pub(super) fn open(honest: &Honest, cluster: &str, token: &str) -> Result<InstanceWatch> {
    let (mock, advertised) = (&honest.mock, &honest.mock.advertised);
    let now = mock.now();
    let moves = mock.cloud.journal_moves();
    let sequence = mock.cloud.read(now, |state| -> Result<u64> {
        state.enter("instances:watch")?;
        if token.is_empty() {
            return Ok(state.journal.head());
        }
        let sequence = read_resume_token(&honest.epoch, token, now, advertised.resume_token_validity())?;
        state.changes_after(sequence, cluster)?;
        Ok(sequence)
    })?;
    let pace = (advertised.bookmark_interval() / 2).max(Duration::from_millis(1));
    let reader = Reader { honest: honest.clone(), cluster: cluster.to_owned(), sequence, moves, pace };
    let events = stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        match reader.next().await {
            Ok(events) => Some((stream::iter(events.into_iter().map(Ok).collect::<Vec<_>>()), Some(reader))),
            Err(error) => Some((stream::iter(vec![Err(error)]), None)),
        }
    });
    Ok(InstanceWatch { resumed: !token.is_empty(), events: events.flatten().boxed() })
}

impl Reader {
    /// The next changes and the token after them, or after a while only a fresh token.
    async fn next(&mut self) -> Result<Vec<WatchEvent>> {
        let moved = *self.moves.borrow_and_update() > self.sequence;
        if !moved {
            // The sender lives as long as the cloud; when it is gone, so is the process.
            let _moved_or_time_for_a_token = tokio::time::timeout(self.pace, self.moves.changed()).await;
        }
        let now = self.honest.mock.now();
        let (changes, head, token) = self.honest.mock.cloud.read(now, |state| -> Result<_> {
            let changes = state.changes_after(self.sequence, &self.cluster)?;
            let head = state.journal.head();
            Ok((changes, head, resume_token(&self.honest.epoch, head, now)))
        })?;
        self.sequence = head;
        let mut events: Vec<_> = changes.into_iter().map(changed).collect();
        events.push(WatchEvent::Bookmark(token));
        Ok(events)
    }
}

fn changed(change: Change) -> WatchEvent {
    WatchEvent::Changed(InstanceChanged { provider_id: change.provider_id, node_name: change.name })
}
