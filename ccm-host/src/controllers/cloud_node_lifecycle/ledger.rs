//! Records the deletions allowed within the window where the next process finds them.
//!
//! In: what the guard allowed, before anything is deleted. Out: what former or concurrent processes allowed. The
//! ledger is a ConfigMap with a key for each provider, read when the first node is found absent. [`super::guard`]
//! decides what is allowed; without the ledger nothing is. Grants that count for the pace are marked such that a host
//! without paces counts them for the share.

use std::{collections::HashMap, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    Controller, Memory,
    guard::{Count, Grant},
};
use crate::{
    cloud::Provider,
    kube::{
        node::Node,
        patch::{RecordKey, WriteError},
    },
};

/// The ConfigMap; the RBAC rules in `deploy/` name it.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "cloud-node-lifecycle-deletions";

/// The last known content of the ledger.
#[derive(Debug)]
pub(super) struct Ledger {
    version: Option<String>,
    /// The grants recorded in it.
    grants: HashMap<String, Grant>,
}

/// Prefix of the uid of a node deleted at a pace; no uid contains a slash.
const PACED: &str = "pace/";

/// Parses a ledger: uids, and when their deletion was allowed.
fn parse(text: &str, clock: Clock) -> Option<HashMap<String, Grant>> {
    let entry = |entry: &str| {
        let (uid, second) = entry.rsplit_once(':')?;
        let at = clock.instant(Timestamp::from_second(second.parse().ok()?).ok()?);
        let (uid, count) = match uid.strip_prefix(PACED) {
            Some(uid) => (uid, Count::Pace),
            None => (uid, Count::Share),
        };
        (!uid.is_empty()).then(|| (uid.to_owned(), Grant { at, count }))
    };
    text.split(',').filter(|_| !text.is_empty()).map(entry).collect()
}

/// Formats a ledger.
fn print(grants: &HashMap<String, Grant>, clock: Clock) -> String {
    let entry = |(uid, grant): (&String, &Grant)| {
        let mark = if grant.count == Count::Pace { PACED } else { "" };
        // Rounded up to the next second, so that no grant is forgotten too early.
        format!("{mark}{uid}:{}", clock.time(grant.at).as_second() + 1)
    };
    let mut entries: Vec<_> = grants.iter().map(entry).collect();
    entries.sort_unstable();
    entries.join(",")
}

/// One moment on both clocks: the monotonic one, and the wall clock that processes share.
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

    /// A time that seems to be in the future, by another machine's clock, counts as now.
    fn instant(self, at: Timestamp) -> Instant {
        let age = Duration::try_from(self.time.duration_since(at)).unwrap_or_default();
        self.instant.checked_sub(age).unwrap_or(self.instant)
    }
}

impl Controller {
    /// Loads what was allowed before into the guard, unless that was done already.
    pub(super) async fn recall(
        &self,
        provider: &Arc<dyn Provider>,
        memory: &mut Memory,
    ) -> anyhow::Result<()> {
        if memory.ledger.is_some() {
            return Ok(());
        }
        let at = key(provider);
        let record =
            self.parts.writer.read_record(&at).await.with_context(|| format!("{at} cannot be read"))?;
        let Some(grants) = parse(&record.text, Clock::now()) else {
            bail!("{at} is {:?}, not UID:SECONDS,...; remove the key", record.text);
        };
        memory.guard.recall(&grants);
        memory.ledger = Some(Ledger { version: record.version, grants });
        Ok(())
    }

    /// Records what the guard allowed; returns the nodes that may be deleted now.
    pub(super) async fn record(
        &self,
        provider: &Arc<dyn Provider>,
        memory: &mut Memory,
        to_go: Vec<Arc<Node>>,
    ) -> Vec<Arc<Node>> {
        let (at, grants) = (key(provider), memory.guard.grants().clone());
        // A node without a grant needs no entry.
        let known = |node: &&Arc<Node>| {
            let stands = |ledger: &Ledger| ledger.grants.contains_key(&node.uid);
            !grants.contains_key(&node.uid) || memory.ledger.as_ref().is_some_and(stands)
        };
        if to_go.iter().all(|node| known(&node)) {
            return to_go;
        }
        let version = memory.ledger.as_ref().and_then(|ledger| ledger.version.clone());
        let text = print(&grants, Clock::now());
        match self.parts.writer.replace_record(&at, version.as_deref(), &text).await {
            Ok(written) => {
                memory.ledger = Some(Ledger { version: Some(written.resource_version), grants });
                to_go
            }
            Err(error) => {
                let (known, unknown): (Vec<_>, Vec<_>) = to_go.into_iter().partition(|node| known(&node));
                // Another process wrote the ledger, or our write may have succeeded: read it again before the next
                // ruling.
                memory.ledger = None;
                unknown.iter().for_each(|node| memory.guard.revoke(&node.uid));
                if !error.is_stale() && !matches!(error, WriteError::NotLeading) {
                    let error = anyhow::Error::from(error).context(format!("{at} cannot be written"));
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
        let grants: HashMap<_, _> = [
            ("b".to_owned(), Grant { at: ago(30), count: Count::Share }),
            ("a:1".to_owned(), Grant { at: ago(0), count: Count::Pace }),
        ]
        .into();
        let text = print(&grants, clock);
        let second = clock.time.as_second();
        assert_eq!(text, format!("b:{},pace/a:1:{}", second - 29, second + 1));
        let read = parse(&text, clock).unwrap();
        let whole = |uid: &str| (read[uid].at.duration_since(ago(60)).as_secs(), read[uid].count);
        assert_eq!(
            (whole("b"), whole("a:1")),
            ((30, Count::Share), (60, Count::Pace)),
            "to the second, and no older than it was"
        );
        assert_eq!(parse("", clock), Some(HashMap::new()));
    }

    #[test]
    fn what_is_no_ledger_is_not_guessed_at() {
        for text in ["x", "x:", ":1", "pace/:1", "x:1,", "x:1,,y:2", "x:one"] {
            assert_eq!(parse(text, Clock::now()), None, "{text:?}");
        }
    }

    #[test]
    fn what_lies_ahead_is_now() {
        let clock = Clock::now();
        assert_eq!(clock.instant(clock.time + Duration::from_secs(3600)), clock.instant);
    }
}
