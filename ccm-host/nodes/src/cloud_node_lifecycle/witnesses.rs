//! What bears a provider out that denies instances, or speaks against it: the Ready nodes that it is asked about, and the
//! Leases of those that it denies.
//!
//! In: the Ready nodes, what the provider says of them, and Leases as this process sees them change. Out: whom to ask about,
//! where the provider contradicts itself, and which kubelets are alive.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::decide::{Presence, zone};
use ccm_kube::{node::Node, patch::NodeLease};

/// Random Ready nodes that the provider is asked about, at most; as many as there are zones with candidates, if these are more.
pub(super) const MOST: usize = 20;
/// Ready nodes that it denied before, and is asked about as well, at most.
const MOST_DENIED: usize = 10;
/// Denied nodes with living kubelets are a contradiction if they are more than one in this many found.
const IN: usize = 10;
/// A single one is none where this many are found: its provider ID may be stale.
const ENOUGH: usize = 3;
/// Who has been denied for so long is compared with all Ready nodes: the provider is not beginning to lie, their provider IDs
/// are stale, say.
const STALE: Duration = Duration::from_secs(3600);
/// Consecutive passes without a contradiction that end one.
const CLEAN_PASSES: u32 = 2;
/// No Lease is waited for longer, whatever a kubelet writes into it.
const LONGEST_LEASE: Duration = Duration::from_secs(600);

/// Nodes by zone.
pub(super) type Counts = HashMap<String, usize>;

/// What the provider said about Ready nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Control {
    /// Number of Ready nodes that it may be asked about.
    pub(super) ready: usize,
    /// These, by zone.
    pub(super) ready_in: Counts,
    /// Those of them that it has denied for long.
    pub(super) stale: Counts,
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
    pub(super) fn outweighed_by(&self, denied: &[&Counts]) -> HashSet<Option<String>> {
        let mut by_zone = Counts::new();
        for (zone, nodes) in denied.iter().copied().flatten() {
            *by_zone.entry(zone.clone()).or_default() += nodes;
        }
        let mut all = outweighed(&by_zone, &self.found);
        all.extend(outweighed(&self.stale, &self.ready_in));
        all
    }
}

fn outweighed(denied: &Counts, found: &Counts) -> HashSet<Option<String>> {
    let all = |counts: &Counts| counts.values().sum::<usize>();
    let whole = too_many(all(denied), all(found)).then_some(None);
    let of = |zone: &str| found.get(zone).copied().unwrap_or_default();
    let zones = denied.iter().filter(|(zone, nodes)| too_many(**nodes, of(zone)));
    zones.map(|(zone, _)| Some(zone.clone())).chain(whole).collect()
}

/// Where the provider contradicts itself, until that ends.
#[derive(Debug, Default)]
pub(super) struct Contradictions {
    /// By zone, `None` for all of its nodes: the passes since the last proof.
    clean: HashMap<Option<String>, u32>,
    /// When there was last a Ready node, or this began.
    last_ready: Option<Instant>,
}

impl Contradictions {
    pub(super) fn zones(&self) -> impl Iterator<Item = &Option<String>> {
        self.clean.keys()
    }

    /// Only a pass that asked about Ready nodes proves anything. Without any, what is known of the provider counts for a window
    /// more: the last one may be back in a moment.
    pub(super) fn weigh(&mut self, now: Instant, control: &Control, window: Duration) {
        let last_ready = self.last_ready.get_or_insert(now);
        if control.ready > 0 {
            *last_ready = now;
        } else if now.saturating_duration_since(*last_ready) >= window {
            self.clean.clear();
        }
        if control.asked {
            self.clean.retain(|_, clean| {
                *clean += 1;
                *clean < CLEAN_PASSES
            });
            let proven = control.outweighed_by(&[&control.alive]);
            self.clean.extend(proven.into_iter().map(|zone| (zone, 0)));
        }
    }
}

/// How many of these nodes are in each zone.
pub(super) fn by_zone<'a>(nodes: impl IntoIterator<Item = &'a Arc<Node>>) -> Counts {
    let mut counts = Counts::new();
    for node in nodes {
        *counts.entry(zone(node).to_owned()).or_default() += 1;
    }
    counts
}

/// Whether so many denied nodes, beside so many found, contradict the provider.
pub(super) fn too_many(denied: usize, found: usize) -> bool {
    denied * IN > found && (denied > 1 || found < ENOUGH)
}

/// The Ready nodes that the provider denies, by uid.
#[derive(Debug, Default)]
pub(super) struct Denials(HashMap<String, DeniedNode>);

#[derive(Debug)]
struct DeniedNode {
    since: Instant,
    /// When the provider last said so.
    last: Instant,
    is_told: bool,
}

impl DeniedNode {
    fn is_stale(&self) -> bool {
        self.last.saturating_duration_since(self.since) >= STALE
    }
}

impl Denials {
    /// Forgets all but these nodes: one that is not Ready proves nothing.
    pub(super) fn only(&mut self, ready: &[Arc<Node>]) {
        let uids: HashSet<&str> = ready.iter().map(|node| node.uid.as_str()).collect();
        self.0.retain(|uid, _| uids.contains(uid.as_str()));
    }

    /// Records what the provider said about a Ready node. If it denies it, returns since when, and whether the node is among
    /// [`Denials::stale`].
    pub(super) fn heard(&mut self, now: Instant, node: &Node, presence: Presence) -> Option<(Instant, bool)> {
        match presence {
            Presence::Denied => {
                let new = || DeniedNode { since: now, last: now, is_told: false };
                let denial = self.0.entry(node.uid.clone()).or_insert_with(new);
                denial.last = now;
                Some((denial.since, denial.is_stale()))
            }
            Presence::Found => self.0.remove(&node.uid).and(None),
            // It takes nothing back, and contradicts nothing now.
            Presence::Unknown => None,
        }
    }

    /// Those of these nodes that were denied for long: as far as the provider was asked, it may have stopped since.
    pub(super) fn stale(&self, ready: &[Arc<Node>]) -> Counts {
        by_zone(ready.iter().filter(|node| self.0.get(&node.uid).is_some_and(DeniedNode::is_stale)))
    }

    /// Whether this contradiction is still to be reported.
    pub(super) fn is_news(&mut self, node: &Node) -> bool {
        self.0.get_mut(&node.uid).is_some_and(|denial| !std::mem::replace(&mut denial.is_told, true))
    }

    pub(super) fn uids(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// The control group: a fresh random sample, spread over all zones, at least one node of each zone with candidates; and
/// nodes that were denied before.
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
    let most = group.len() + MOST.max(candidates.len());
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
    renewed: Option<String>,
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
        let renewed = lease.and_then(|lease| lease.renewed.clone());
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

#[cfg(test)]
mod tests;
