//! Which deletions were allowed within the window, kept where the next process finds them.
//!
//! In: what the guard allowed, before anything is deleted. Out: what former processes, or another one beside us, allowed. It
//! stands in a ConfigMap, a key for each provider, and is read when the first node is found absent. What is allowed is
//! decided in [`super::guard`]; without the ledger nothing is.

use std::{collections::HashMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Controller, Memory, decide::is_vouched_for};
use crate::{
    cloud::Provider,
    kube::{
        node::Node,
        patch::{RecordKey, WriteError},
    },
};

/// The ConfigMap; `deploy/` gives the right to it by this name.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "cloud-node-lifecycle-deletions";

/// What is known of the ledger.
#[derive(Debug, Default)]
pub(super) struct Ledger(Option<Seen>);

#[derive(Debug)]
struct Seen {
    version: Option<String>,
    /// The grants that stand in it.
    grants: HashMap<String, Instant>,
}

/// Why nothing can be deleted.
#[derive(Debug, thiserror::Error)]
enum LedgerError {
    #[error("{0} cannot be read")]
    Unreadable(RecordKey, #[source] WriteError),
    #[error("{0} is {1:?}, not UID:SECONDS,...; remove the key")]
    Malformed(RecordKey, String),
    #[error("{0} cannot be written")]
    Unwritable(RecordKey, #[source] WriteError),
}

/// Reads a ledger: uids, and when their deletion was allowed.
fn parse(text: &str) -> Option<HashMap<String, Timestamp>> {
    let entry = |entry: &str| {
        let (uid, second) = entry.rsplit_once(':')?;
        let at = Timestamp::from_second(second.parse().ok()?).ok()?;
        (!uid.is_empty()).then(|| (uid.to_owned(), at))
    };
    text.split(',').filter(|_| !text.is_empty()).map(entry).collect()
}

/// Writes one.
fn print(grants: &HashMap<String, Instant>, clock: Clock) -> String {
    // The second that has begun: a grant is not forgotten too early.
    let second = |at: Instant| clock.time(at).as_second() + 1;
    let mut entries: Vec<_> = grants.iter().map(|(uid, at)| format!("{uid}:{}", second(*at))).collect();
    entries.sort_unstable();
    entries.join(",")
}

/// One moment by both clocks: the one that goes on at its pace, and the one that processes share.
#[derive(Debug, Clone, Copy)]
struct Clock {
    instant: Instant,
    time: Timestamp,
}

impl Clock {
    fn now() -> Self {
        Self { instant: Instant::now(), time: crate::clock::now() }
    }

    fn time(self, at: Instant) -> Timestamp {
        self.time.checked_sub(self.instant.saturating_duration_since(at)).unwrap_or(self.time)
    }

    /// What seems to lie ahead, as another machine's clock may say, is now.
    fn instant(self, at: Timestamp) -> Instant {
        let age = Duration::try_from(self.time.duration_since(at)).unwrap_or_default();
        self.instant.checked_sub(age).unwrap_or(self.instant)
    }
}

impl Controller {
    /// Tells the guard what was allowed before, unless it knows.
    pub(super) async fn recall(
        &self,
        provider: &Arc<dyn Provider>,
        memory: &mut Memory,
    ) -> anyhow::Result<()> {
        if memory.ledger.0.is_some() {
            return Ok(());
        }
        let at = key(provider);
        let record = self
            .context
            .writer
            .read_record(&at)
            .await
            .map_err(|error| LedgerError::Unreadable(at.clone(), error))?;
        let Some(grants) = parse(&record.text) else {
            return Err(LedgerError::Malformed(at, record.text).into());
        };
        let clock = Clock::now();
        let grants: HashMap<_, _> = grants.into_iter().map(|(uid, at)| (uid, clock.instant(at))).collect();
        memory.guard.recall(&grants);
        memory.ledger = Ledger(Some(Seen { version: record.version, grants }));
        Ok(())
    }

    /// Writes down what the guard allowed; out come the nodes that may go now.
    pub(super) async fn record(
        &self,
        provider: &Arc<dyn Provider>,
        memory: &mut Memory,
        to_go: Vec<Arc<Node>>,
        cancel: &CancellationToken,
    ) -> Vec<Arc<Node>> {
        let known = |node: &&Arc<Node>| {
            let stands = |seen: &Seen| seen.grants.contains_key(&node.uid);
            is_vouched_for(node) || memory.ledger.0.as_ref().is_some_and(stands)
        };
        if to_go.iter().all(|node| known(&node)) {
            return to_go;
        }
        let (at, grants) = (key(provider), memory.guard.grants().clone());
        let version = memory.ledger.0.as_ref().and_then(|seen| seen.version.clone());
        let text = print(&grants, Clock::now());
        match self.context.writer.replace_record(&at, version.as_deref(), &text, cancel).await {
            Ok(written) => {
                memory.ledger = Ledger(Some(Seen { version: Some(written.resource_version), grants }));
                to_go
            }
            Err(error) => {
                let (known, unknown): (Vec<_>, Vec<_>) = to_go.into_iter().partition(|node| known(&node));
                // Somebody else wrote, or we may have: it is read again before the next ruling.
                memory.ledger = Ledger::default();
                memory.guard.revoke(unknown.iter().map(|node| node.uid.as_str()));
                if !error.is_stale() && !matches!(error, WriteError::Cancelled) {
                    let error = LedgerError::Unwritable(at, error).into();
                    self.none_deleted(provider, &unknown, &mut memory.failures, &error);
                }
                known
            }
        }
    }
}

fn key(provider: &Arc<dyn Provider>) -> RecordKey {
    RecordKey { namespace: NAMESPACE, name: NAME, key: provider.name().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let time = Timestamp::from_millisecond(1_000_000_500).unwrap();
        let clock = Clock { instant: Instant::now(), time };
        let ago = |seconds| clock.instant - Duration::from_secs(seconds);
        let grants: HashMap<_, _> = [("b".to_owned(), ago(30)), ("a:1".to_owned(), ago(0))].into();
        let text = print(&grants, clock);
        let second = clock.time.as_second();
        assert_eq!(text, format!("a:1:{},b:{}", second + 1, second - 29));
        let read = parse(&text).unwrap();
        let whole = |at: Timestamp| clock.instant(at).duration_since(ago(60)).as_secs();
        assert_eq!(
            (whole(read["b"]), whole(read["a:1"])),
            (30, 60),
            "to the second, and no older than it was"
        );
        assert_eq!(parse(""), Some(HashMap::new()));
    }

    #[test]
    fn what_is_no_ledger_is_not_guessed_at() {
        for text in ["x", "x:", ":1", "x:1,", "x:1,,y:2", "x:one"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_lies_ahead_is_now() {
        let clock = Clock::now();
        assert_eq!(clock.instant(clock.time + Duration::from_secs(3600)), clock.instant);
    }
}
