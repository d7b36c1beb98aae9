//! Writes taints, deletes nodes, and shows which are held back.
//!
//! In: what was decided. Out: guarded writes, each followed by its Event. A write that conflicts is left to the next
//! pass, which decides again.
//!
//! Before anything is deleted, it is recorded in a ledger where the next process finds it: a ConfigMap with a key for
//! each provider, read when the first node is found absent. Without the ledger nothing is deleted.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    Controller, Domain, DomainMemory,
    decide::{CONFIRM_DELETION, Evidence, is_ready, is_unheard},
    places::Grants,
    rule::Rule,
    witnesses::Life,
};
use ccm_base::{clock, metric::of_provider};
use ccm_cloud::{Family, Provider, ProviderStatus};
use ccm_kube::{
    events::EventType,
    node::{Node, Taint},
    patch::{NodeChange, Patch, RecordKey, WantedCondition, WriteError, node_condition, node_main},
    queue::Backoff,
};

/// The condition of a node that is not deleted although its instance is gone.
pub(super) const HELD_BACK: &str = "CloudProviderDeletionBlocked";

const WRITES_AT_ONCE: usize = 16;

const BACKOFF: Backoff = Backoff { base: Duration::from_secs(10), max: Duration::from_secs(300) };

/// Deletions that failed, by uid.
#[derive(Debug, Default)]
pub(super) struct Failures(HashMap<String, Failed>);

#[derive(Debug)]
struct Failed {
    times: u32,
    /// When to retry.
    next: Instant,
    /// It certainly had no effect the last time.
    refused: bool,
}

impl Failures {
    fn may_try(&self, node: &Node, now: Instant) -> bool {
        self.0.get(&node.uid).is_none_or(|failed| failed.next <= now)
    }

    fn was_refused(&self, node: &Node) -> bool {
        self.0.get(&node.uid).is_some_and(|failed| failed.refused)
    }

    fn failed(&mut self, node: &Node, now: Instant, refused: bool) {
        let times = self.0.get(&node.uid).map_or(0, |failed| failed.times);
        let failed = Failed { times: times.saturating_add(1), next: now + BACKOFF.delay(times), refused };
        self.0.insert(node.uid.clone(), failed);
    }

    pub(super) fn only(&mut self, absent: &[Evidence]) {
        let uids: HashSet<&str> = absent.iter().map(|evidence| evidence.node.uid.as_str()).collect();
        self.0.retain(|uid, _| uids.contains(uid.as_str()));
    }
}

/// Does this for each, several at a time; the results come in any order.
pub(super) async fn each<T, R: Future>(all: Vec<T>, work: impl FnMut(T) -> R) -> Vec<R::Output> {
    stream::iter(all).map(work).buffer_unordered(WRITES_AT_ONCE).collect().await
}

impl Controller {
    /// Returns the nodes that were written.
    pub(super) async fn write_taints(&self, changes: Vec<(Arc<Node>, Vec<Taint>)>) -> Vec<Arc<Node>> {
        let write = async |(node, taints): (Arc<Node>, Vec<Taint>)| {
            let change = NodeChange { taints: Some(taints), ..NodeChange::default() };
            let patch = node_main(&node, &change)?;
            self.write(&node, &patch, "shutdown taint").await.then_some(node)
        };
        each(changes, write).await.into_iter().flatten().collect()
    }

    /// Whether the patch was written. A failure is left to the next pass.
    async fn write(&self, node: &Node, patch: &Patch, what: &str) -> bool {
        match self.parts.writer.patch::<Node>(&node.name, patch).await {
            Ok(_) => {
                tracing::info!(node = node.name, "{what} written");
                true
            }
            Err(
                WriteError::NotFound
                | WriteError::Gone
                | WriteError::Conflict
                | WriteError::NotLeading
                | WriteError::HeldBack(_),
            ) => false,
            Err(error) => {
                let error = anyhow::Error::from(error);
                tracing::warn!(node = node.name, error = format!("{error:#}"), "{what} not written");
                false
            }
        }
    }

    /// Deletes nodes, after one more live check of each. One whose deletion is refused keeps no place from the others.
    pub(super) async fn delete_all(
        &self,
        providers: &[Arc<dyn Provider>],
        nodes: Vec<Arc<Node>>,
        DomainMemory { domain, guard, failures, .. }: &mut DomainMemory<'_>,
    ) {
        let now = Instant::now();
        let (due, wait): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| failures.may_try(node, now));
        let refused = wait.iter().filter(|node| failures.was_refused(node));
        refused.for_each(|node| guard.revoke(&node.uid, Some(now)));
        let delete = async |node: Arc<Node>| {
            let deleted = self.delete(providers, &node).await;
            (node, deleted)
        };
        for (node, deleted) in each(due, delete).await {
            match deleted {
                Ok(true) => self.deleted(domain, &node),
                Ok(false) => {}
                Err(error) => {
                    let refused = error.downcast_ref().is_some_and(WriteError::is_refusal);
                    if refused {
                        guard.revoke(&node.uid, Some(now));
                    }
                    failures.failed(&node, now, refused);
                    self.not_deleted(domain, &node, &error);
                }
            }
        }
    }

    /// Whether the node was deleted; false if it has changed, and nothing was done.
    async fn delete(&self, providers: &[Arc<dyn Provider>], node: &Node) -> anyhow::Result<bool> {
        let writer = &self.parts.writer;
        let live = writer.get::<Node>(&node.name, &self.parts.nodes.keep()).await?;
        let Some(live) = live else { return Ok(false) };
        let is_same = live.uid == node.uid && live.provider_id == node.provider_id;
        if !is_same || is_ready(&live) || !self.parts.is_ours(&live) {
            tracing::info!(node = node.name, "not deleted: it has changed in the meantime");
            return Ok(false);
        }
        if providers
            .iter()
            .any(|provider| *provider.status(Family::Instances).borrow() != ProviderStatus::Serving)
        {
            tracing::info!(node = node.name, "not deleted: its provider is unhealthy");
            return Ok(false);
        }
        match writer.delete::<Node>(&node.name, &node.uid).await {
            Ok(()) => Ok(true),
            Err(WriteError::NotFound | WriteError::NotLeading | WriteError::HeldBack(_)) => Ok(false),
            Err(error) if error.is_stale() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reports that none of these nodes is deleted, for one reason; at the pace of retries of a failing deletion.
    pub(super) fn none_deleted<'a>(
        &self,
        domain: &Domain,
        nodes: impl IntoIterator<Item = &'a Arc<Node>>,
        failures: &mut Failures,
        error: &anyhow::Error,
    ) {
        let now = Instant::now();
        for node in nodes {
            if failures.may_try(node, now) {
                failures.failed(node, now, false);
                self.not_deleted(domain, node, error);
            }
        }
    }

    fn deleted(&self, domain: &Domain, node: &Node) {
        tracing::info!(
            node = node.name,
            uid = node.uid,
            provider = domain.name,
            "deleted: its instance is gone"
        );
        self.metrics.deletions.get_or_create(&of_provider(domain.name.as_str(), [])).inc();
        let message = "deleted the node because its instance does not exist any more";
        self.recorder.record(node, EventType::Normal, "DeletingNode", message);
    }

    fn not_deleted(&self, domain: &Domain, node: &Node, error: &anyhow::Error) {
        tracing::warn!(node = node.name, error = format!("{error:#}"), "not deleted");
        self.metrics.deletion_failures.get_or_create(&of_provider(domain.name.as_str(), [])).inc();
        let message = format!(
            "the instance of the node does not exist any more, but the node is not deleted: {error:#}"
        );
        self.recorder.record(node, EventType::Warning, "DeletingNodeFailed", message);
    }

    /// Filters the nodes that may be deleted to those whose kubelets are silent; holds the others back. `doubted`: Ready
    /// nodes are denied as well whose Leases are yet to tell, so that only the nodes' own Leases are believed.
    pub(super) async fn only_silent(
        &self,
        memory: &mut DomainMemory<'_>,
        nodes: Vec<Arc<Node>>,
        doubted: bool,
        held_back: &mut HashMap<String, Rule>,
    ) -> Vec<Arc<Node>> {
        let mut silent = Vec::new();
        for (node, lease) in self.leases(nodes, |node| node).await {
            let (now, uid) = (Instant::now(), &node.uid);
            let Some(since) = memory.guard.first_denied(uid) else { continue };
            let life = lease.map(|lease| {
                memory.leases.heard(now, uid, lease.as_ref());
                memory.leases.life(now, uid, since, is_unheard(&node) && !doubted)
            });
            match life {
                Ok(Life::Silent) => silent.push(node),
                Ok(life) => {
                    let rule = if life == Life::Alive { Rule::Alive } else { Rule::Unsettled };
                    memory.guard.revoke(uid, Some(now));
                    held_back.insert(uid.clone(), rule);
                }
                Err(error) => {
                    memory.guard.revoke(uid, None);
                    self.none_deleted(memory.domain, [&node], &mut memory.failures, &error);
                }
            }
        }
        silent
    }

    /// Sets the condition on nodes that are held back, with the rule.
    pub(super) async fn show_held_back(&self, nodes: Vec<(Arc<Node>, Rule)>) {
        let show = async |(node, rule): (Arc<Node>, Rule)| {
            let remedy = rule.remedy(format!(
                "to delete this node anyway, annotate it with {CONFIRM_DELETION}={}",
                node.uid
            ));
            let why = rule.explanation();
            let explained = format!("the provider says that the instance is gone, but {why}; {remedy}");
            let wanted = WantedCondition {
                type_: HELD_BACK,
                status: "True",
                reason: rule.reason(),
                message: (&explained).into(),
            };
            if self.write_condition(&node, &wanted).await {
                self.recorder.record(&*node, EventType::Warning, "NodeDeletionBlocked", explained);
            }
        };
        each(nodes, show).await;
    }

    /// Clears the condition on nodes that are no longer held back.
    pub(super) async fn show_freed(&self, nodes: Vec<Arc<Node>>) {
        let wanted = WantedCondition {
            type_: HELD_BACK,
            status: "False",
            reason: "DeletionAllowed",
            message: "the node is not held back any more".into(),
        };
        let show = async |node: Arc<Node>| {
            self.write_condition(&node, &wanted).await;
        };
        each(nodes, show).await;
    }

    /// Whether the condition was written; false if it was up to date.
    async fn write_condition(&self, node: &Node, wanted: &WantedCondition<'_>) -> bool {
        match node_condition(node, wanted, clock::now()) {
            Some(patch) => self.write(node, &patch, "condition").await,
            None => false,
        }
    }
}

/// The ConfigMap; the RBAC rules in `deploy/` name it.
const NAME: &str = "cloud-node-lifecycle-deletions";

/// The last known content of the ledger.
#[derive(Debug)]
pub(super) struct DeletionLedger {
    version: Option<String>,
    /// The grants recorded in it.
    grants: Grants,
}

/// Prefix of the uid of a node deleted at a pace; no uid contains a slash. A host without paces counts it for the share.
const PACED: &str = "pace/";

/// Parses a ledger: uids, and when their deletion was allowed.
fn parse(text: &str, clock: Clock) -> Option<Grants> {
    let mut grants = Grants::default();
    for entry in text.split(',').filter(|_| !text.is_empty()) {
        let (uid, second) = entry.rsplit_once(':')?;
        let at = clock.instant(Timestamp::from_second(second.parse().ok()?).ok()?);
        let (uid, granted) = match uid.strip_prefix(PACED) {
            Some(uid) => (uid, &mut grants.pace),
            None => (uid, &mut grants.share),
        };
        if uid.is_empty() {
            return None;
        }
        granted.insert(uid.to_owned(), at);
    }
    Some(grants)
}

/// Formats a ledger.
fn print(grants: &Grants, clock: Clock) -> String {
    let marked = [("", &grants.share), (PACED, &grants.pace)];
    let all = marked.into_iter().flat_map(|(mark, granted)| granted.iter().map(move |one| (mark, one)));
    // Rounded up to the next second, so that no grant is forgotten too early.
    let entry = |(mark, (uid, at)): (&str, (&String, &Instant))| {
        format!("{mark}{uid}:{}", clock.time(*at).as_second() + 1)
    };
    let mut entries: Vec<_> = all.map(entry).collect();
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
        Self { instant: Instant::now(), time: ccm_base::clock::now() }
    }

    fn time(self, at: Instant) -> Timestamp {
        self.time.checked_sub(self.instant.saturating_duration_since(at)).unwrap_or(self.time)
    }

    /// A time that seems to be in the future, by another machine's clock, counts as now.
    fn instant(self, at: Timestamp) -> Instant {
        self.instant.checked_sub(clock::between(at, self.time)).unwrap_or(self.instant)
    }
}

impl Controller {
    /// Loads what was allowed before into the guard, unless that was done already.
    pub(super) async fn recall(&self, memory: &mut DomainMemory<'_>) -> anyhow::Result<()> {
        if memory.ledger.is_some() {
            return Ok(());
        }
        let at = key(memory.domain);
        let record =
            self.parts.writer.read_record(&at).await.with_context(|| format!("{at} cannot be read"))?;
        let Some(grants) = parse(&record.text, Clock::now()) else {
            bail!("{at} is {:?}, not UID:SECONDS,...; remove the key", record.text);
        };
        memory.guard.recall(&grants);
        memory.ledger = Some(DeletionLedger { version: record.version, grants });
        Ok(())
    }

    /// Records what the guard allowed; returns the nodes that may be deleted now.
    pub(super) async fn record(
        &self,
        memory: &mut DomainMemory<'_>,
        to_go: Vec<Arc<Node>>,
    ) -> Vec<Arc<Node>> {
        let (at, grants) = (key(memory.domain), memory.guard.grants().clone());
        // A node without a grant needs no entry.
        let known = |node: &&Arc<Node>| {
            let stands = |ledger: &DeletionLedger| ledger.grants.has(&node.uid);
            !grants.has(&node.uid) || memory.ledger.as_ref().is_some_and(stands)
        };
        if to_go.iter().all(|node| known(&node)) {
            return to_go;
        }
        let version = memory.ledger.as_ref().and_then(|ledger| ledger.version.clone());
        let text = print(&grants, Clock::now());
        match self.parts.writer.replace_record(&at, version.as_deref(), &text).await {
            Ok(version) => {
                memory.ledger = Some(DeletionLedger { version: Some(version), grants });
                to_go
            }
            Err(error) => {
                let (known, unknown): (Vec<_>, Vec<_>) = to_go.into_iter().partition(|node| known(&node));
                // Another process wrote the ledger, or our write may have succeeded: read it again before the next
                // ruling.
                memory.ledger = None;
                unknown.iter().for_each(|node| memory.guard.revoke(&node.uid, None));
                if !error.is_stale() && !matches!(error, WriteError::NotLeading) {
                    let error = anyhow::Error::from(error).context(format!("{at} cannot be written"));
                    self.none_deleted(memory.domain, &unknown, &mut memory.failures, &error);
                }
                known
            }
        }
    }
}

fn key(domain: &Domain) -> RecordKey {
    RecordKey { name: NAME, key: domain.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let time = Timestamp::from_millisecond(1_000_000_500).unwrap();
        let clock = Clock { instant: Instant::now(), time };
        let ago = |seconds| clock.instant - Duration::from_secs(seconds);
        let grants =
            Grants { share: [("b".to_owned(), ago(30))].into(), pace: [("a:1".to_owned(), ago(0))].into() };
        let text = print(&grants, clock);
        let second = clock.time.as_second();
        assert_eq!(text, format!("b:{},pace/a:1:{}", second - 29, second + 1));
        let read = parse(&text, clock).unwrap();
        let whole = |at: Instant| at.duration_since(ago(60)).as_secs();
        assert_eq!(
            (whole(read.share["b"]), whole(read.pace["a:1"])),
            (30, 60),
            "to the second, and no older than it was"
        );
        assert_eq!(parse("", clock), Some(Grants::default()));
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
