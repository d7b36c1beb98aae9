//! Guards every deletion of a Node. Pure: time and randomness are arguments.
//!
//! In: what each check of one provider's nodes found, for candidates and Ready nodes alike, and the Leases of nodes that
//! it denies. Out: which nodes may be deleted now, and which rule holds back each of the others. An answer is believed
//! only when it repeats, and only as far as Ready nodes and Leases bear it out. A person may vouch for single nodes.
//!
//! No two machines' clocks are compared: an observation of the provider only with its earlier ones, and a Lease only
//! with itself, at the times at which this process saw it.
//!
//! ```text
//!           absent, old enough         k checks in a row
//!   node ────────────────────► suspect ────────────────► ripe: ask about Ready nodes
//!     ▲                           │                        │
//!     └── any other answer, or ───┘                        ├─ too many denied whose kubelets live ─► hold: contradiction
//!         an unhealthy provider                            ├─ asked about, none found ────────────► hold
//!                                                          ├─ one of its zone found ──────────────► delete, by pace
//!                                                          └─ none of its zone, or none Ready ────► delete, by share
//! ```

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;

use super::decide::{Presence, zone};
use ccm_kube::{node::Node, patch::NodeLease};

/// Random Ready nodes that the provider is asked about, at most.
const MOST: usize = 20;
/// Ready nodes that it denied before, and is asked about as well, at most.
const MOST_DENIED: usize = 10;
/// Denied nodes with living kubelets are a contradiction if they are more than one in this many found.
const IN: usize = 10;
/// A single one is none where this many are found: its provider ID may be stale.
const ENOUGH: usize = 3;
/// Consecutive passes without a contradiction that end one.
const CLEAN_PASSES: u32 = 2;
/// With a control group, this many nodes may be deleted within [`MINUTE`], or [`PACE`] of all if that is more.
const AT_LEAST: usize = 10;
const PACE: f64 = 0.1;
const MINUTE: Duration = Duration::from_secs(60);
/// No Lease is waited for longer, whatever a kubelet writes into it.
const LONGEST_LEASE: Duration = Duration::from_secs(600);

/// Why a node is not deleted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Rule {
    /// The provider denies too many nodes whose kubelets are alive.
    Contradiction,
    /// The provider found none of the Ready nodes that it was asked about.
    NoneFound,
    /// Its own Lease, or those of Ready nodes that the provider denies, do not tell yet whether kubelets are alive.
    Unsettled,
    /// The limit of deletions per minute is reached.
    Pace,
    /// The node's zone has no Ready node, and the limit per window is reached.
    ZoneShare,
    /// The provider has no Ready node, and the limit per window is reached.
    Share,
    /// Its own kubelet is alive.
    Alive,
    /// It has no provider ID, and no instance was found by its name.
    Nameless,
}

impl Rule {
    pub(super) const ALL: [Self; 8] = [
        Self::Contradiction,
        Self::NoneFound,
        Self::Unsettled,
        Self::Pace,
        Self::ZoneShare,
        Self::Share,
        Self::Alive,
        Self::Nameless,
    ];

    /// The metric's label value, the condition's reason and, for people, the cause and what ends it.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Contradiction => (
                "contradiction",
                "ProviderContradictsItself",
                "the provider also denies the instances of Ready nodes whose kubelets renew their Leases, in this zone or \
                 more than a tenth of all: the node stays until that stops",
            ),
            Self::NoneFound => (
                "control_not_found",
                "ControlGroupNotFound",
                "the provider found no instance of the Ready nodes it was asked about either: nothing is deleted until it \
                 finds one",
            ),
            Self::Unsettled => (
                "lease_unsettled",
                "LeaseUnsettled",
                "it is not known yet whether the kubelet of this node, or those of Ready nodes that the provider denies, \
                 are alive: their Leases show it once they were renewed, or were not for their duration",
            ),
            Self::Pace => (
                "pace",
                "DeletionsPaced",
                "as many nodes of this provider as are allowed were deleted within the last minute: this one follows within \
                 minutes",
            ),
            Self::ZoneShare => (
                "zone_share",
                "ZoneWithoutReadyNode",
                "no node of its zone is Ready to check the provider's answers against, and --node-deletion-max-share of the \
                 provider's nodes were deleted within --node-deletion-window: this one follows in a later window",
            ),
            Self::Share => (
                "share",
                "TooManyDeletions",
                "no node of the provider is Ready to check its answers against, and --node-deletion-max-share of its nodes \
                 were deleted within --node-deletion-window: this one follows in a later window, or within minutes once a \
                 node is Ready",
            ),
            Self::Alive => (
                "kubelet_alive",
                "KubeletAlive",
                "the kubelet of this node still renews its Lease: the node stays until that stops",
            ),
            Self::Nameless => (
                "no_provider_id",
                "NoProviderID",
                "the node has no provider ID, and that no instance has its name proves nothing: the node stays until an operator confirms it",
            ),
        }
    }

    pub(super) fn label(self) -> &'static str {
        self.words().0
    }

    pub(super) fn reason(self) -> &'static str {
        self.words().1
    }

    pub(super) fn explanation(self) -> &'static str {
        self.words().2
    }

    /// Whether it ends by itself so soon that a condition would only flap.
    pub(super) fn is_brief(self) -> bool {
        self == Self::Unsettled
    }

    /// How a person makes the node go nevertheless. A living kubelet would only register it again.
    pub(super) fn remedy(self, overrule: String) -> String {
        if self == Self::Alive { "stop its kubelet if the node is really to go".to_owned() } else { overrule }
    }
}

/// The conditions for the deletion of a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rules {
    /// Minimum age of a node.
    pub(super) grace: Duration,
    /// Consecutive answers that must report the instance absent.
    pub(super) confirmations: u32,
    /// Minimum time between those answers.
    pub(super) spacing: Duration,
    /// Share of the nodes that may be deleted within the window where no Ready node vouches for the provider; at
    /// least one node.
    pub(super) max_share: f64,
    /// The window of `max_share`.
    pub(super) window: Duration,
}

/// A node that has no instance.
#[derive(Debug, Clone)]
pub(super) struct Evidence {
    pub(super) node: Arc<Node>,
    pub(super) age: Duration,
    /// A person confirmed that it is really gone.
    pub(super) vouched: bool,
    /// An autoscaler or a person has given the node up already.
    pub(super) given_up: bool,
    /// When the provider looked for its instance, by its clock.
    pub(super) observed_at: Timestamp,
}

/// Nodes by zone.
pub(super) type Counts = HashMap<String, usize>;

/// What the provider said about Ready nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Control {
    /// Number of Ready nodes that it may be asked about.
    pub(super) ready: usize,
    /// It was asked about some.
    pub(super) asked: bool,
    /// Those found.
    pub(super) found: Counts,
    /// Those denied whose kubelets are alive.
    pub(super) alive: Counts,
    /// Those denied whose kubelets may or may not be alive.
    pub(super) unsettled: Counts,
    /// The longest duration of the Leases of those denied: by then each has been renewed or has expired.
    pub(super) settle: Duration,
}

impl Control {
    /// Adds a later check of the same pass: what contradicted the provider in any of them counts.
    pub(super) fn then(&mut self, later: Self) {
        if later.asked {
            (self.asked, self.found, self.unsettled) = (true, later.found, later.unsettled);
        }
        for (zone, nodes) in later.alive {
            let most = self.alive.entry(zone).or_default();
            *most = nodes.max(*most);
        }
        self.settle = self.settle.max(later.settle);
    }

    /// The zones in which these denied nodes are too many beside those found; `None` for the provider as a whole.
    fn outweighed_by(&self, denied: &[&Counts]) -> HashSet<Option<String>> {
        let all = |counts: &Counts| counts.values().sum::<usize>();
        let mut by_zone = Counts::new();
        for (zone, nodes) in denied.iter().copied().flatten() {
            *by_zone.entry(zone.clone()).or_default() += nodes;
        }
        let whole = too_many(all(&by_zone), all(&self.found)).then_some(None);
        let found = |zone: &str| self.found.get(zone).copied().unwrap_or_default();
        let zones = by_zone.into_iter().filter(|(zone, nodes)| too_many(*nodes, found(zone)));
        zones.map(|(zone, _)| Some(zone)).chain(whole).collect()
    }
}

/// Whether so many denied nodes, beside so many found, contradict the provider.
fn too_many(denied: usize, found: usize) -> bool {
    denied * IN > found && (denied > 1 || found < ENOUGH)
}

/// The Ready nodes that the provider denies, by uid: since when, and whether that was reported.
#[derive(Debug, Default)]
pub(super) struct Denials(HashMap<String, (Instant, bool)>);

impl Denials {
    /// Forgets all but these nodes: one that is not Ready proves nothing.
    pub(super) fn only(&mut self, ready: &[Arc<Node>]) {
        let uids: HashSet<&str> = ready.iter().map(|node| node.uid.as_str()).collect();
        self.0.retain(|uid, _| uids.contains(uid.as_str()));
    }

    /// Records what the provider said about a Ready node. If it denies it, returns since when.
    pub(super) fn heard(&mut self, now: Instant, node: &Node, presence: Presence) -> Option<Instant> {
        match presence {
            Presence::Denied => Some(self.0.entry(node.uid.clone()).or_insert((now, false)).0),
            Presence::Found => self.0.remove(&node.uid).and(None),
            // It takes nothing back, and contradicts nothing now.
            Presence::Unknown => None,
        }
    }

    /// Whether this contradiction is still to be reported.
    pub(super) fn is_news(&mut self, node: &Node) -> bool {
        self.0.get_mut(&node.uid).is_some_and(|(_, told)| !std::mem::replace(told, true))
    }

    pub(super) fn uids(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// The control group: a fresh random sample, spread over all zones, those of the candidates first; and nodes that were
/// denied before.
pub(super) fn sample(
    ready: &[Arc<Node>],
    candidates: &HashSet<&str>,
    denials: &Denials,
    rng: &mut fastrand::Rng,
) -> Vec<Arc<Node>> {
    let mut pool: Vec<&Arc<Node>> = ready.iter().collect();
    // Sort first: a seed must replay whatever the order of the cache.
    pool.sort_by(|one, other| one.name.cmp(&other.name));
    rng.shuffle(&mut pool);
    let (mut group, rest): (Vec<_>, Vec<_>) =
        pool.into_iter().partition(|node| denials.0.contains_key(&node.uid));
    let surplus = group.split_off(group.len().min(MOST_DENIED));
    let most = group.len() + MOST;
    let mut by_zone: BTreeMap<&str, Vec<&Arc<Node>>> = BTreeMap::new();
    for node in rest.into_iter().chain(surplus) {
        by_zone.entry(zone(node)).or_default().push(node);
    }
    let mut zones: Vec<_> = by_zone.into_iter().collect();
    rng.shuffle(&mut zones);
    zones.sort_by_key(|(zone, _)| !candidates.contains(zone));
    while group.len() < most && !zones.is_empty() {
        zones.retain_mut(|(_, nodes)| {
            if group.len() < most {
                group.extend(nodes.pop());
            }
            !nodes.is_empty()
        });
    }
    group.into_iter().cloned().collect()
}

/// Whether a kubelet is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// It renewed its Lease after its instance was denied, and has not fallen silent since.
    Alive,
    /// Its Lease has not changed for its duration, or does not exist.
    Silent,
    /// Not known yet: the Lease will tell within its duration.
    Unsettled,
}

/// Kubelets' Leases as this process saw them change, by the node's uid. What a kubelet writes into its Lease is a value
/// that changes or does not, never a time: its clock may be wrong.
#[derive(Debug, Default)]
pub(super) struct Leases(HashMap<String, LeaseHeard>);

#[derive(Debug)]
struct LeaseHeard {
    renewed: Option<Timestamp>,
    /// Zero if there is no Lease.
    duration: Duration,
    /// The Lease was first seen as it is.
    since: Instant,
    /// It was last seen before that, with another value: the renewal came later.
    before: Option<Instant>,
    last: Instant,
}

impl Leases {
    pub(super) fn only(&mut self, uids: &HashSet<&str>) {
        self.0.retain(|uid, _| uids.contains(uid.as_str()));
    }

    /// Records a Lease as it is now; returns its duration.
    pub(super) fn heard(&mut self, now: Instant, uid: &str, lease: Option<&NodeLease>) -> Duration {
        let renewed = lease.and_then(|lease| lease.renewed);
        let duration = lease.map_or(Duration::ZERO, |lease| lease.duration.min(LONGEST_LEASE));
        match self.0.get_mut(uid) {
            None => {
                let heard = LeaseHeard { renewed, duration, since: now, before: None, last: now };
                self.0.insert(uid.to_owned(), heard);
            }
            Some(heard) => {
                if heard.renewed != renewed {
                    (heard.since, heard.before) = (now, Some(heard.last));
                }
                (heard.renewed, heard.duration, heard.last) = (renewed, duration, now);
            }
        }
        duration
    }

    /// For how long the kubelet has been silent; zero until it has been so for the duration of its Lease.
    pub(super) fn silent_for(&self, now: Instant, uid: &str) -> Duration {
        let heard = self.0.get(uid).map(|heard| (now.saturating_duration_since(heard.since), heard.duration));
        heard.filter(|(silent, duration)| silent >= duration).map_or(Duration::ZERO, |(silent, _)| silent)
    }

    /// Whether the kubelet of a node that was denied first at `denied` is alive. `unheard`: whether
    /// kube-controller-manager, which follows each Lease by its own clock, has found it silent; then the Lease has to
    /// show nothing but that this did not change.
    pub(super) fn life(&self, now: Instant, uid: &str, denied: Instant, unheard: bool) -> Life {
        let Some(heard) = self.0.get(uid) else { return Life::Unsettled };
        let was_renewed = heard.before.is_some_and(|before| before >= denied);
        match now.saturating_duration_since(heard.since) >= heard.duration {
            true => Life::Silent,
            false if was_renewed => Life::Alive,
            false if unheard => Life::Silent,
            false => Life::Unsettled,
        }
    }
}

/// Deletions that were allowed, by uid, and when: those that count for the pace, and those that count for the share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Grants {
    pub(super) pace: HashMap<String, Instant>,
    pub(super) share: HashMap<String, Instant>,
}

impl Grants {
    pub(super) fn has(&self, uid: &str) -> bool {
        self.pace.contains_key(uid) || self.share.contains_key(uid)
    }
}

/// Counts how many nodes may be deleted within a time, and which were.
#[derive(Debug, Default)]
struct Places {
    granted: Grants,
    /// The numbers of nodes seen within the window, and the largest of them.
    seen: VecDeque<(Instant, usize)>,
    peak: usize,
}

impl Places {
    /// Notes the number of nodes, and forgets grants that no longer count.
    fn note(&mut self, now: Instant, window: Duration, total: usize) {
        let within = |at: Instant, window| now.saturating_duration_since(at) < window;
        self.seen.retain(|(at, _)| within(*at, window));
        self.seen.push_back((now, total));
        self.peak = self.seen.iter().map(|(_, number)| *number).max().unwrap_or_default();
        self.granted.pace.retain(|_, at| within(*at, MINUTE));
        self.granted.share.retain(|_, at| within(*at, window));
    }

    /// Whether the node has a place already, or takes one now: of the pace, or of this share. A retry takes no second
    /// one.
    fn take(&mut self, uid: &str, share: Option<f64>, now: Instant) -> bool {
        if self.granted.has(uid) {
            return true;
        }
        let (most, granted) = match share {
            None => (part_of(self.peak, PACE).max(AT_LEAST), &mut self.granted.pace),
            Some(share) => (part_of(self.peak, share).max(1), &mut self.granted.share),
        };
        let is_free = granted.len() < most;
        if is_free {
            granted.insert(uid.to_owned(), now);
        }
        is_free
    }
}

/// A part of a number of nodes, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a cluster has some thousands of nodes, and the part is between 0 and 1"
)]
fn part_of(nodes: usize, part: f64) -> usize {
    (nodes as f64 * part) as usize
}

/// The decision of one pass.
#[derive(Debug, Default)]
pub(super) struct Ruling {
    /// Nodes that may be deleted, only now.
    pub(super) delete: Vec<Arc<Node>>,
    /// Nodes that are ripe for deletion, but held back, by uid.
    pub(super) held_back: HashMap<String, Rule>,
}

/// The guard of one provider's nodes.
#[derive(Debug)]
pub(super) struct Guard {
    rules: Rules,
    /// By uid.
    suspects: HashMap<String, Suspect>,
    places: Places,
    /// The zones in which the provider contradicts itself, `None` for all of its nodes: the passes since the last proof.
    contradicted: HashMap<Option<String>, u32>,
}

#[derive(Debug)]
struct Suspect {
    confirmations: u32,
    since: Instant,
    /// Since then nothing has contradicted the denial.
    undisputed: Instant,
    last: Instant,
    last_observed: Timestamp,
    /// Its kubelet was not found silent when it was about to be deleted.
    stood_back: bool,
}

impl Guard {
    pub(super) fn new(rules: Rules) -> Self {
        Self { rules, suspects: HashMap::new(), places: Places::default(), contradicted: HashMap::new() }
    }

    pub(super) fn is_contradicted(&self) -> bool {
        !self.contradicted.is_empty()
    }

    /// Loads deletions allowed by former or concurrent processes.
    pub(super) fn recall(&mut self, grants: &Grants) {
        for (mine, theirs) in
            [(&mut self.places.granted.pace, &grants.pace), (&mut self.places.granted.share, &grants.share)]
        {
            theirs.iter().for_each(|(uid, at)| _ = mine.entry(uid.clone()).or_insert(*at));
        }
    }

    /// The deletions that were allowed, for as long as they count.
    pub(super) fn grants(&self) -> &Grants {
        &self.places.granted
    }

    /// Takes back a deletion that was allowed but not carried out. If the kubelet was not found silent, other nodes
    /// take precedence from now on.
    pub(super) fn revoke(&mut self, uid: &str, stand_back: bool) {
        self.places.granted.pace.remove(uid);
        self.places.granted.share.remove(uid);
        if let Some(suspect) = self.suspects.get_mut(uid) {
            suspect.stood_back |= stand_back;
        }
    }

    /// The provider was unhealthy at some point: discards all it has said so far.
    pub(super) fn distrust(&mut self) {
        self.suspects.clear();
    }

    /// When the provider first denied this node, in all checks since.
    pub(super) fn first_denied(&self, uid: &str) -> Option<Instant> {
        self.suspects.get(uid).map(|suspect| suspect.since)
    }

    /// How many checks in a row reported this node's instance absent; none count while the node is too young.
    pub(super) fn confirmations(&self, uid: &str) -> u32 {
        self.suspects.get(uid).map_or(0, |suspect| suspect.confirmations)
    }

    /// Whether another check is needed before a ruling.
    pub(super) fn wants_another_look(&self, control_was_asked: bool) -> bool {
        let unripe = |suspect: &Suspect| suspect.confirmations < self.rules.confirmations;
        !self.suspects.is_empty() && (!control_was_asked || self.suspects.values().any(unripe))
    }

    /// Counts the findings of one check, during all of which the provider must have been healthy.
    pub(super) fn confirm(&mut self, now: Instant, absent: &[Evidence]) {
        let old: Vec<_> = absent.iter().filter(|evidence| evidence.age >= self.rules.grace).collect();
        let uids: HashSet<_> = old.iter().map(|evidence| evidence.node.uid.as_str()).collect();
        self.suspects.retain(|uid, _| uids.contains(uid.as_str()));
        for Evidence { node, observed_at, .. } in old {
            match self.suspects.get_mut(&node.uid) {
                Some(suspect) => suspect.confirm(now, self.rules.spacing, *observed_at),
                None => drop(self.suspects.insert(node.uid.clone(), Suspect::new(now, *observed_at))),
            }
        }
    }

    /// Rules on the findings of a pass, after its checks were counted. `total`: the number of the provider's nodes.
    pub(super) fn rule(
        &mut self,
        now: Instant,
        total: usize,
        absent: &[Evidence],
        control: &Control,
    ) -> Ruling {
        self.places.note(now, self.rules.window, total);
        self.weigh(control);
        let contradicted: HashSet<_> = self.contradicted.keys().cloned().collect();
        let doubted = control.outweighed_by(&[&control.alive, &control.unsettled]);
        let mut ripe = Vec::new();
        for evidence in absent {
            let Some(suspect) = self.suspects.get_mut(&evidence.node.uid) else { continue };
            let is_contradicted = covers(&contradicted, &evidence.node);
            if is_contradicted {
                suspect.undisputed = now;
            }
            // What is denied now may be part of the same lie, until the Leases have shown otherwise.
            let is_new = now.saturating_duration_since(suspect.undisputed) < control.settle;
            let doubt = match is_new && covers(&doubted, &evidence.node) {
                _ if is_contradicted => Some(Rule::Contradiction),
                true => Some(Rule::Unsettled),
                false => None,
            };
            if suspect.confirmations >= self.rules.confirmations {
                ripe.push((suspect.stood_back, evidence, doubt));
            }
        }
        ripe.sort_by_key(|(stood_back, evidence, _)| (*stood_back, &evidence.node.uid));
        let mut ruling = Ruling::default();
        for (_, evidence, doubt) in ripe {
            let node = &evidence.node;
            match self.holds_back(now, evidence, doubt, control) {
                Some(rule) => drop(ruling.held_back.insert(node.uid.clone(), rule)),
                None => ruling.delete.push(Arc::clone(node)),
            }
        }
        ruling
    }

    /// Only a pass that asked about Ready nodes proves anything.
    fn weigh(&mut self, control: &Control) {
        if control.asked {
            self.contradicted.retain(|_, clean| {
                *clean += 1;
                *clean < CLEAN_PASSES
            });
            let contradicted = control.outweighed_by(&[&control.alive]);
            self.contradicted.extend(contradicted.into_iter().map(|zone| (zone, 0)));
        }
    }

    /// `None` if the node may be deleted, and has its place.
    fn holds_back(
        &mut self,
        now: Instant,
        evidence: &Evidence,
        doubt: Option<Rule>,
        control: &Control,
    ) -> Option<Rule> {
        let all = Some(self.rules.max_share);
        let (share, rule) = match control {
            _ if evidence.vouched => return None,
            _ if doubt.is_some() => return doubt,
            Control { ready: 0, .. } => (all, Rule::Share),
            Control { found, .. } if found.is_empty() => return Some(Rule::NoneFound),
            _ if evidence.given_up => return None,
            Control { found, .. } if found.contains_key(zone(&evidence.node)) => (None, Rule::Pace),
            _ => (all, Rule::ZoneShare),
        };
        (!self.places.take(&evidence.node.uid, share, now)).then_some(rule)
    }
}

/// Whether the node is in one of these zones, or all are meant.
fn covers(zones: &HashSet<Option<String>>, node: &Node) -> bool {
    !zones.is_empty() && (zones.contains(&None) || zones.contains(&Some(zone(node).to_owned())))
}

impl Suspect {
    fn new(now: Instant, observed_at: Timestamp) -> Self {
        let (since, undisputed, last, last_observed) = (now, now, now, observed_at);
        Self { confirmations: 1, since, undisputed, last, last_observed, stood_back: false }
    }

    /// Counts the answer, unless the provider had that observation before it was asked again.
    fn confirm(&mut self, now: Instant, spacing: Duration, observed_at: Timestamp) {
        if now.saturating_duration_since(self.last) >= spacing && observed_at > self.last_observed {
            self.confirmations = self.confirmations.saturating_add(1);
            (self.last, self.last_observed) = (now, observed_at);
        }
    }
}

#[cfg(test)]
mod tests;
