//! The stream of changed instances, read from the journal, so that a slow reader loses no key.

use std::time::Duration;

use cloudprovider_sdk::{InstanceWatch, ProviderError, Result, WatchEvent};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::watch;

use super::Honest;
use crate::cloud::{read_resume_token, resume_token};

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
pub(super) async fn open(honest: &Honest, cluster: &str, token: &str) -> Result<InstanceWatch> {
    let (mock, advertised) = (&honest.mock, &honest.mock.advertised);
    let now = honest.at_cloud().await;
    let moves = mock.cloud.moves();
    let sequence = mock.cloud.read(now, |state| -> Result<u64> {
        state.enter("instances:watch")?;
        if token.is_empty() {
            return Ok(state.journal.head());
        }
        let sequence = read_resume_token(&honest.epoch, token, now, advertised.resume_token_validity())?;
        // It can be resumed.
        state.journal.after(sequence, cluster).map(|_| sequence)
    })?;
    let pace = (advertised.bookmark_interval() / 2).max(Duration::from_millis(1));
    let reader = Reader { honest: honest.clone(), cluster: cluster.to_owned(), sequence, moves, pace };
    let events = stream::try_unfold(reader, |mut reader| async move {
        let events = reader.next().await?;
        Ok::<_, ProviderError>(Some((stream::iter(events).map(Ok), reader)))
    });
    Ok(InstanceWatch { resumed: !token.is_empty(), events: events.try_flatten().boxed() })
}

impl Reader {
    /// The next changes and the token after them, or after a while only a fresh token.
    async fn next(&mut self) -> Result<Vec<WatchEvent>> {
        let moved = self.moves.wait_for(|head| *head > self.sequence);
        let _moved_or_time_for_a_token = tokio::time::timeout(self.pace, moved).await.is_ok();
        let now = self.honest.mock.now();
        let (changes, head, token) = self.honest.mock.cloud.read(now, |state| -> Result<_> {
            let changes = state.journal.after(self.sequence, &self.cluster)?;
            let head = state.journal.head();
            Ok((changes, head, resume_token(&self.honest.epoch, head, now)))
        })?;
        self.sequence = head;
        let mut events: Vec<_> = changes.into_iter().map(WatchEvent::Changed).collect();
        events.push(WatchEvent::Bookmark(token));
        Ok(events)
    }
}
