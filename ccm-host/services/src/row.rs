//! What is known of each balancer: one row for each, by the uid of its Service and by its provider.
//!
//! In: what was sent, answered and listed. Out: the facts that [`plan`](mod@super::plan) and
//! [`fate`](mod@super::fate) compare with what is wanted. Only the methods of a row that name an occasion change it:
//! recalled, listed, asked, answered, failed, removed. A row outlives neither the process nor its balancer; after a
//! restart, the provider's list and the record in the Service's status ([`super::record`]) fill the rows again.
//!
//! ```text
//!             listed, or recalled
//!  Unsure ───────────────────────────────► Applied ◄───┐ answered in full
//!    │ asked                      failed,    │         │
//!    └────────────► Asked ◄── or being ──────┴─────────┘
//!                     │       removed
//!                     └──► Removed          Absent: a complete list lacks it
//! ```

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use ccm_state::LastCall;
use tokio::time::Instant;

use super::{NodeSync, service::ip_mode};
use ccm_cloud::{
    Effects, ServiceCondition, cover_the_same_backends, covers_backends, differ_in_backends_only, joined,
    service_part,
};
use ccm_kube::service::{Ingress, ObjectKey, Service};

/// Stands for the backends that no record knows: no set has this digest, so an update follows.
pub(super) const UNKNOWN_BACKENDS: &str = "unknown";

/// The natural key of a balancer, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    pub(super) uid: Arc<str>,
    pub(super) provider: Arc<str>,
}

impl RowKey {
    pub(super) fn new(uid: &str, provider: &str) -> Self {
        Self { uid: uid.into(), provider: provider.into() }
    }
}

impl fmt::Display for RowKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} at {}", self.uid, self.provider)
    }
}

/// One balancer, as far as it is known.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) at: RowKey,
    /// Namespace and name of its Service.
    pub(super) key: ObjectKey,
    /// The Service as last seen; `None` if this process has never seen it.
    pub(super) last: Option<Arc<Service>>,
    pub(super) known: Known,
    /// The last attempts, which must not be repeated early.
    pub(super) tried: BTreeMap<Goal, Attempt>,
    /// What answers and lists give the Service.
    pub(super) status: Status,
    /// A call is under way.
    pub(super) busy: bool,
    /// Nothing is left of it, and nobody waits to hear that: it goes once the call has ended.
    pub(super) goes: bool,
    /// When a call last began or ended, as counted by [`super::rows`]: a list that began earlier knows less.
    pub(super) touched: u64,
    /// The same of calls that may have made it. An update makes nothing, so it does not weaken a list without it.
    pub(super) made: u64,
    /// The state for which the starting Event was emitted.
    pub(super) announced: Option<String>,
    /// Measures the time until the last node change reaches this balancer, too.
    pub(super) node_sync: Option<Arc<NodeSync>>,
    /// If no Service wants it: the cloud's id, and how many sweeps found it so.
    pub(super) orphan: Option<Orphan>,
    /// For people.
    pub(super) last_call: Option<LastCall>,
    /// Its Service certainly had it: this process asked for it, and not only for its removal, or a record that is gone now
    /// said so.
    pub(super) is_proven: bool,
    sent: Option<Sent>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Orphan {
    pub(super) id: String,
    pub(super) sightings: u32,
}

/// What is known of a balancer's existence and state.
#[derive(Debug, Clone)]
pub(super) enum Known {
    /// It may exist: nothing proves or denies it.
    Unsure,
    /// A complete list lacks it.
    Absent,
    /// This process removed it.
    Removed,
    /// It was asked for or listed, and may be in any state. Holds the digest last asked for or listed.
    Asked {
        made_as: Option<String>,
    },
    Applied(Applied),
}

/// The state last applied completely.
#[derive(Debug, Clone)]
pub(super) struct Applied {
    /// Digest of Service and backends.
    pub(super) digest: String,
    /// The Service that was applied; `None` if only its digest is known.
    pub(super) service: Option<Arc<Service>>,
    /// The provider cannot give it other nodes by an update.
    pub(super) needs_ensure: bool,
    pub(super) doubt: Doubt,
}

/// What may differ from what was applied, because a later call failed or is under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Doubt {
    pub(super) service: bool,
    pub(super) backends: bool,
    /// A person doubts it, whatever lists say: only an Ensure ends that.
    pub(super) of_person: bool,
}

/// How far a wanted state and a known one may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    Nothing,
    /// Only the nodes behind the balancer.
    Backends,
    /// The Service, or something unknown.
    Service,
}

/// What a call is to achieve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Goal {
    /// As the Service says.
    Wanted,
    /// As it was last applied, but with the current nodes: what the Service says has to wait, or was refused.
    Upkeep,
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attempt {
    /// Of the state that was asked for.
    pub(super) digest: String,
    /// It was to change nothing but the backends.
    pub(super) of_backends: bool,
    pub(super) end: End,
    /// When it ended.
    pub(super) at: Instant,
    /// When the first one like it ended, if the provider has been working on it since.
    pub(super) since: Instant,
    /// When to retry; `None` means once the Service changes, or at the next sweep.
    pub(super) until: Option<Instant>,
}

impl Attempt {
    /// Whether it was at this state. Other nodes make no other attempt.
    pub(super) fn is_of(&self, digest: &str) -> bool {
        self.digest == digest || differ_in_backends_only(&self.digest, digest)
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Failed,
    /// Without an answer: the provider may still be working on it.
    Unknown,
    /// The provider is working on it.
    InProgress,
    /// Another implementation serves the Service.
    Elsewhere,
}

impl End {
    fn is_open(self) -> bool {
        matches!(self, Self::Unknown | Self::InProgress)
    }
}

/// How long work that goes on keeps its place: longer than clouds take that are well.
const KEEPS_PLACE: Duration = Duration::from_secs(900);

/// In microseconds, as revisions: a second, and a year.
const RAISED_FIRST: u64 = 1_000_000;
const RAISED_MOST: u64 = 365 * 24 * 3600 * RAISED_FIRST;

/// The state last sent.
#[derive(Debug, Clone)]
struct Sent {
    digest: Option<String>,
    revision: u64,
    /// By how much the last revision that was stale was raised.
    raised: u64,
}

/// What a balancer gives its Service, as far as it is known; [`super::publish`] writes it. Annotations and conditions stay until they are written: a provider answers only once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Status {
    /// The entries to publish, once an answer or a list reported them; empty, until those of a former balancer are gone.
    pub(super) ingress: Option<Vec<Ingress>>,
    /// `None` means to remove.
    pub(super) annotations: BTreeMap<String, Option<String>>,
    pub(super) conditions: BTreeMap<String, ServiceCondition>,
}

impl Status {
    /// As the Service wants it published.
    pub(super) fn of(&self, service: &Service) -> Self {
        let mut status = self.clone();
        if let Ok(Some(mode)) = ip_mode(service) {
            let entries = status.ingress.iter_mut().flatten().filter(|entry| !entry.ip.is_empty());
            entries.for_each(|entry| entry.ip_mode = Some(mode.to_owned()));
        }
        status
    }

    /// Takes up what an answer wants written.
    pub(super) fn wants(&mut self, effects: Effects) {
        self.annotations.extend(effects.annotations);
        self.conditions.extend(effects.conditions);
    }

    /// Forgets what was written.
    pub(super) fn is_written(&mut self, written: &Self) {
        // That there is no address is said once: the next one may be somebody else's, as where kube-vip gives addresses.
        self.ingress.take_if(|known| known.is_empty() && written.ingress.as_ref() == Some(known));
        self.annotations.retain(|key, value| written.annotations.get(key) != Some(value));
        self.conditions.retain(|type_, condition| written.conditions.get(type_) != Some(condition));
    }
}

impl Row {
    pub(super) fn new(at: RowKey, key: ObjectKey, known: Known) -> Self {
        Self {
            at,
            key,
            last: None,
            known,
            tried: BTreeMap::new(),
            status: Status::default(),
            busy: false,
            goes: false,
            touched: 0,
            made: 0,
            announced: None,
            node_sync: None,
            orphan: None,
            last_call: None,
            is_proven: false,
            sent: None,
        }
    }

    /// Whether it may well be as wanted already: all that this process knows is that it exists, or it was applied so
    /// before it was doubted.
    pub(super) fn may_be(&self, wanted: &str) -> bool {
        let is_only_known_to_exist = matches!(self.known, Known::Asked { .. }) && self.sent.is_none();
        is_only_known_to_exist || self.applied().is_some_and(|applied| applied.digest == wanted)
    }

    /// Whether it is certain that there is, or was, a balancer.
    pub(super) fn is_present(&self) -> bool {
        matches!(self.known, Known::Asked { .. } | Known::Applied(_))
    }

    pub(super) fn is_removed(&self) -> bool {
        matches!(self.known, Known::Removed)
    }

    pub(super) fn applied(&self) -> Option<&Applied> {
        match &self.known {
            Known::Applied(applied) => Some(applied),
            Known::Unsure | Known::Absent | Known::Removed | Known::Asked { .. } => None,
        }
    }

    fn applied_mut(&mut self) -> Option<&mut Applied> {
        match &mut self.known {
            Known::Applied(applied) => Some(applied),
            Known::Unsure | Known::Absent | Known::Removed | Known::Asked { .. } => None,
        }
    }

    /// The digest with which the balancer was made, which shows its class.
    pub(super) fn made_as(&self) -> Option<&str> {
        match &self.known {
            Known::Applied(applied) => Some(&applied.digest),
            Known::Asked { made_as } => made_as.as_deref(),
            Known::Unsure | Known::Absent | Known::Removed => None,
        }
    }

    /// How far the balancer may be from the state with this digest.
    pub(super) fn difference(&self, wanted: &str) -> Difference {
        let Some(Applied { digest, doubt, .. }) = self.applied() else { return Difference::Service };
        if doubt.service || (digest != wanted && !differ_in_backends_only(digest, wanted)) {
            Difference::Service
        } else if doubt.backends || digest != wanted {
            Difference::Backends
        } else {
            Difference::Nothing
        }
    }

    /// Whether it is known to be applied with these backends.
    pub(super) fn has_backends(&self, set: &str) -> bool {
        self.applied().is_some_and(|applied| !applied.doubt.backends && covers_backends(&applied.digest, set))
    }

    /// Whether work that goes on keeps its place among those of its provider: what may never end must not keep all.
    pub(super) fn keeps_place(&self, goal: Goal) -> bool {
        self.tried.get(&goal).is_some_and(|attempt| attempt.since.elapsed() < KEEPS_PLACE)
    }

    /// The last attempts to create or to change it.
    fn changes_tried(&self) -> impl Iterator<Item = &Attempt> {
        self.tried.iter().filter(|(goal, _)| **goal != Goal::Gone).map(|(_, attempt)| attempt)
    }

    /// The provider may still be removing it.
    pub(super) fn is_going(&self) -> bool {
        self.tried.get(&Goal::Gone).is_some_and(|attempt| attempt.end.is_open())
    }

    /// Another implementation serves the Service, as the provider answered.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.tried.get(&Goal::Wanted).is_some_and(|attempt| attempt.end == End::Elsewhere)
    }

    /// The earliest moment at which an attempt may be repeated.
    pub(super) fn due(&self) -> Option<Instant> {
        self.changes_tried().filter_map(|attempt| attempt.until).min()
    }

    /// The revision to send with a wanted state (`None` means deleted). It grows when the state differs from the last
    /// one sent, and never starts below the clock, so that it also grows across restarts.
    pub(super) fn revision(&mut self, digest: Option<&str>, wall_micros: u64) -> u64 {
        let (last, raised) = match &self.sent {
            Some(sent) if sent.digest.as_deref() == digest => return sent.revision,
            Some(sent) => (sent.revision, sent.raised),
            None => (0, 0),
        };
        let revision = wall_micros.max(last + 1);
        self.sent = Some(Sent { digest: digest.map(str::to_owned), revision, raised });
        revision
    }

    /// The provider knows a newer revision: makes the next one new even if the state is the same. A clock that was
    /// hours ahead may have made that one: the steps double, until one is beyond it.
    pub(super) fn is_stale(&mut self) {
        if let Some(sent) = &mut self.sent {
            sent.digest = Some(String::new());
            sent.raised = (2 * sent.raised).clamp(RAISED_FIRST, RAISED_MOST);
            sent.revision += sent.raised;
        }
    }

    /// A call that creates or changes the balancer begins: until its answer, its effect is unknown.
    pub(super) fn asked(&mut self, service: &Arc<Service>, digest: &str, of_backends: bool) {
        self.last = Some(Arc::clone(service));
        self.is_proven = true;
        let tells_other_backends = self.applied().is_some_and(|applied| {
            applied.digest != digest && !(of_backends || cover_the_same_backends(&applied.digest, digest))
        });
        match self.applied_mut() {
            Some(Applied { doubt, .. }) if of_backends => doubt.backends = true,
            Some(Applied { doubt, .. }) => {
                doubt.service = true;
                doubt.backends |= tells_other_backends;
            }
            None => self.known = Known::Asked { made_as: Some(digest.to_owned()) },
        }
    }

    /// The balancer is completely as this Service wants it.
    pub(super) fn is_applied(&mut self, goal: Goal, digest: String, service: &Arc<Service>) {
        let service = Some(Arc::clone(service));
        self.known =
            Known::Applied(Applied { digest, service, needs_ensure: false, doubt: Doubt::default() });
        self.tried.remove(&Goal::Upkeep);
        if goal == Goal::Wanted {
            self.tried.clear();
        }
    }

    /// The balancer has other nodes, and is otherwise as before.
    pub(super) fn has_nodes(&mut self, digest: String) {
        if let Some(applied) = self.applied_mut() {
            applied.digest = digest;
            applied.doubt.backends = false;
        }
        self.tried.remove(&Goal::Upkeep);
    }

    /// The provider cannot give the balancer other nodes: only an Ensure of what is applied helps.
    pub(super) fn needs_ensure(&mut self) {
        if let Some(applied) = self.applied_mut() {
            applied.needs_ensure = true;
        }
    }

    /// The balancer is not as the provider last knew it: only an Ensure of what is wanted helps.
    pub(super) fn is_not_as_known(&mut self) {
        if let Some(applied) = self.applied_mut() {
            applied.doubt.service = true;
        }
        self.tried.remove(&Goal::Wanted);
    }

    /// A list, or a person, says that it may be in any state. Returns whether it was known to be as applied.
    pub(super) fn is_doubted(&mut self, by_person: bool) -> bool {
        let Some(Applied { doubt, .. }) = self.applied_mut() else { return false };
        *doubt = Doubt { service: true, backends: true, of_person: by_person || doubt.of_person };
        true
    }

    pub(super) fn failed(&mut self, goal: Goal, mut attempt: Attempt) {
        let goes_on = |before: &&Attempt| {
            before.end == End::InProgress && attempt.end == End::InProgress && before.is_of(&attempt.digest)
        };
        if let Some(before) = self.tried.get(&goal).filter(goes_on) {
            attempt.since = before.since;
        }
        if attempt.end == End::Elsewhere && goal != Goal::Gone {
            let made_as = self.made_as().map(str::to_owned);
            self.known = Known::Asked { made_as };
            self.status = Status::default();
            self.tried.remove(&Goal::Upkeep);
        }
        self.tried.insert(goal, attempt);
    }

    /// A removal begins: a half-removed balancer matches nothing that was applied, and its addresses are dead.
    pub(super) fn is_leaving(&mut self) {
        if !matches!(self.known, Known::Absent) {
            let made_as = self.made_as().map(str::to_owned);
            self.known = Known::Asked { made_as };
        }
        self.status = Status::default();
        self.tried.remove(&Goal::Wanted);
        self.tried.remove(&Goal::Upkeep);
    }

    /// Nothing is left in the cloud, and its addresses go from the Service.
    pub(super) fn is_gone(&mut self) {
        self.known = Known::Removed;
        self.tried.clear();
        self.status = Status { ingress: Some(Vec::new()), ..Status::default() };
        self.node_sync = None;
        self.orphan = None;
    }

    /// A list was complete without it.
    pub(super) fn is_absent(&mut self) -> bool {
        let was_present = self.is_present();
        if !self.is_removed() {
            self.known = Known::Absent;
        }
        was_present
    }

    /// A list shows that it exists, without a reliable state: only an Ensure finds out more.
    pub(super) fn is_listed(&mut self, digest: Option<&String>) -> bool {
        let is_news = self.applied().is_some();
        let made_as = digest.cloned().or_else(|| self.made_as().map(str::to_owned));
        self.known = Known::Asked { made_as };
        is_news && self.waits_for_a_change()
    }

    /// A list shows that it is not as it was applied with this digest (`None` if the provider keeps none): only an Ensure
    /// mends it, and until one can, updates may still reach it.
    pub(super) fn is_listed_in_doubt(&mut self, digest: Option<&String>) -> bool {
        let was_whole = self.applied().is_some_and(|applied| !applied.doubt.service);
        if let Some(digest) = digest {
            self.is_listed_as(digest);
        }
        if self.is_doubted(false) { was_whole && self.waits_for_a_change() } else { self.is_listed(None) }
    }

    /// No attempt at what is wanted is to be repeated at a time of its own.
    fn waits_for_a_change(&self) -> bool {
        self.tried.get(&Goal::Wanted).is_none_or(|attempt| attempt.until.is_none())
    }

    /// A list shows that it serves, with this digest. What an open attempt may still do, a list cannot tell.
    pub(super) fn is_listed_as(&mut self, digest: &str) -> bool {
        let open = self.changes_tried().any(|attempt| attempt.end.is_open());
        let of_backends = self.tried.get(&Goal::Wanted).is_none_or(|attempt| attempt.of_backends);
        match self.applied_mut() {
            Some(applied) if applied.digest == digest => {
                if !open && !applied.doubt.of_person {
                    applied.doubt = Doubt::default();
                }
                false
            }
            before => {
                let doubt = match before {
                    Some(applied) if open || applied.doubt.of_person => applied.doubt,
                    _ => Doubt { service: open && !of_backends, backends: open, of_person: false },
                };
                let digest = digest.to_owned();
                self.known = Known::Applied(Applied { digest, service: None, needs_ensure: false, doubt });
                true
            }
        }
    }

    /// The list omits addresses that are published: one Ensure settles it.
    pub(super) fn is_to_be_settled(&mut self) {
        if let Some(applied) = self.applied_mut() {
            applied.doubt.service = true;
        }
    }

    /// What waits for a change gets a second chance. Returns whether anything did.
    pub(super) fn reconsider(&mut self) -> bool {
        let before = self.tried.len();
        self.tried.retain(|goal, attempt| *goal == Goal::Gone || attempt.until.is_some());
        self.tried.len() < before
    }

    /// The record of the Service did not know the backends: they are those that all balancers of its provider had.
    pub(super) fn recalls_backends(&mut self, set: &str) {
        if let Some(applied) = self.applied_mut()
            && covers_backends(&applied.digest, UNKNOWN_BACKENDS)
            && let Some(part) = service_part(&applied.digest)
        {
            applied.digest = joined(part, set);
        }
    }

    /// The Service, if the listed digest shows that it is the one that was applied.
    pub(super) fn recognise(&mut self, service: &Arc<Service>, wanted: &str) {
        if let Some(applied) = self.applied_mut()
            && (applied.digest == wanted || differ_in_backends_only(&applied.digest, wanted))
        {
            applied.service = Some(Arc::clone(service));
        }
    }
}

#[cfg(test)]
mod tests;
