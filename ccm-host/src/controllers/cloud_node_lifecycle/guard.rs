//! Guards every deletion of a Node. Pure: time is an argument.
//!
//! In: what each check of one provider's nodes found, for candidates and control group alike. Out: which nodes may be
//! deleted now, and which rule holds back each of the others. An answer is believed only when it repeats, and only as
//! far as Ready nodes confirm it. A person may vouch for single nodes.
//!
//! ```text
//!           absent, old enough         k checks in a row
//!   node ────────────────────► suspect ────────────────► ripe: ask about Ready nodes
//!     ▲                           │                        │
//!     └── any other answer, or ───┘                        ├─ one denied whose kubelet is alive ─► hold: contradiction
//!         an unhealthy provider                            ├─ asked about, none found ───────────► hold
//!                                                          ├─ one of its zone found ─────────────► delete, by pace
//!                                                          ├─ only ones of other zones found ────► delete, by share
//!                                                          └─ there are none ─► delete, by share; beyond that: latch
//! ```

mod places;
mod rule;

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;

use places::Places;
pub(super) use places::{Count, Grant};
pub(super) use rule::Rule;

/// Consecutive passes without a contradiction that end one.
const CLEAN_PASSES: u32 = 2;
/// How long a suspect waits for the Leases of denied Ready nodes: two renewals of a kubelet at default settings.
const SETTLE: Duration = Duration::from_secs(20);

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

/// The findings of one pass.
#[derive(Debug, Clone, Default)]
pub(super) struct Findings {
    /// Number of the provider's nodes.
    pub(super) total: usize,
    /// Nodes that are not ready, and reliably have no instance.
    pub(super) absent: Vec<Evidence>,
    /// Number of nodes that are not ready and about which nothing certain is known.
    pub(super) uncertain: usize,
    /// The provider's answers about Ready nodes in the last check.
    pub(super) control: Control,
    /// The rules that nodes still show in their condition, as left by a former process.
    pub(super) held_before: HashSet<Rule>,
}

/// The provider's answers about Ready nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Control {
    /// Number of the provider's Ready nodes.
    pub(super) ready: usize,
    /// The zones in which one was found.
    pub(super) found: HashSet<String>,
    /// Number of denied nodes whose kubelets are alive.
    pub(super) contradictions: usize,
    /// Number of denied nodes whose kubelets may or may not be alive.
    pub(super) unsettled: usize,
}

/// A node that has no instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Evidence {
    pub(super) uid: String,
    pub(super) zone: String,
    /// Age of the node.
    pub(super) age: Duration,
    /// A person confirmed that it is really gone.
    pub(super) vouched: bool,
    /// An autoscaler or a person has given the node up already.
    pub(super) given_up: bool,
    /// When the provider looked for its instance.
    pub(super) observed_at: Timestamp,
}

/// The decision of one pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ruling {
    /// Nodes that may be deleted, only now.
    pub(super) delete: HashSet<String>,
    /// Nodes that are ripe for deletion, but held back.
    pub(super) held_back: HashMap<String, Rule>,
    /// States of the guard that began or ended in this pass.
    pub(super) turns: Vec<Turn>,
}

/// A change of the guard's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Latched,
    Released,
    Contradicted,
    Settled,
}

/// The guard of one provider's nodes.
#[derive(Debug)]
pub(super) struct Guard {
    rules: Rules,
    suspects: HashMap<String, Suspect>,
    places: Places,
    latched: bool,
    /// While the provider contradicts itself: the passes since the last contradiction.
    contradicted: Option<u32>,
    first_pass: bool,
}

#[derive(Debug)]
struct Suspect {
    confirmations: u32,
    since: Instant,
    last: Instant,
    first_observed: Timestamp,
    last_observed: Timestamp,
    /// Its kubelet was alive when it was about to be deleted.
    alive: bool,
}

impl Guard {
    pub(super) fn new(rules: Rules) -> Self {
        let places = Places::new(rules.max_share, rules.window);
        Self { rules, suspects: HashMap::new(), places, latched: false, contradicted: None, first_pass: true }
    }

    pub(super) fn is_latched(&self) -> bool {
        self.latched
    }

    pub(super) fn is_contradicted(&self) -> bool {
        self.contradicted.is_some()
    }

    /// Loads deletions allowed by former or concurrent processes.
    pub(super) fn recall(&mut self, grants: &HashMap<String, Grant>) {
        self.places.recall(grants);
    }

    /// Takes back a deletion that was allowed but not carried out.
    pub(super) fn revoke(&mut self, uid: &str) {
        self.places.revoke(uid);
    }

    /// Takes back a deletion because the node's kubelet is alive. Other nodes take precedence from now on.
    pub(super) fn found_alive(&mut self, uid: &str) {
        self.places.revoke(uid);
        if let Some(suspect) = self.suspects.get_mut(uid) {
            suspect.alive = true;
        }
    }

    /// The deletions that were allowed, for as long as they count.
    pub(super) fn grants(&self) -> &HashMap<String, Grant> {
        self.places.granted()
    }

    /// The provider was unhealthy at some point: discards all it has said so far.
    pub(super) fn distrust(&mut self) {
        self.suspects.clear();
    }

    /// Whether the provider denied this node in the previous check.
    pub(super) fn is_suspect(&self, uid: &str) -> bool {
        self.suspects.contains_key(uid)
    }

    /// When the provider first denied this node.
    pub(super) fn first_denied(&self, uid: &str) -> Option<Timestamp> {
        self.suspects.get(uid).map(|suspect| suspect.first_observed)
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
        let uids: HashSet<_> = old.iter().map(|evidence| evidence.uid.as_str()).collect();
        self.suspects.retain(|uid, _| uids.contains(uid.as_str()));
        for evidence in old {
            match self.suspects.get_mut(&evidence.uid) {
                Some(suspect) => suspect.confirm(now, self.rules.spacing, evidence.observed_at),
                None => {
                    self.suspects.insert(evidence.uid.clone(), Suspect::new(now, evidence.observed_at));
                }
            }
        }
    }

    /// Rules on the findings of a pass, after its checks were counted.
    pub(super) fn rule(&mut self, now: Instant, findings: &Findings) -> Ruling {
        self.places.note(now, findings.total);
        let mut turns = Vec::new();
        if std::mem::take(&mut self.first_pass) {
            // A former process may have been replaced while it held nodes back: be no less careful than it was.
            self.latched |= findings.held_before.contains(&Rule::Latch);
            let contradicted = findings.held_before.contains(&Rule::Contradiction);
            self.contradicted = contradicted.then_some(0);
            turns.extend(self.latched.then_some(Turn::Latched));
        }
        turns.extend(self.weigh(&findings.control));
        if self.latched && self.may_release(findings) {
            self.latched = false;
            self.suspects.clear();
            turns.push(Turn::Released);
            return Ruling { turns, ..Ruling::default() };
        }
        let was_latched = self.latched;
        let mut ruling = self.allot(now, findings);
        turns.extend((self.latched && !was_latched).then_some(Turn::Latched));
        ruling.turns = turns;
        ruling
    }

    fn weigh(&mut self, control: &Control) -> Option<Turn> {
        let before = self.contradicted;
        self.contradicted = match before {
            _ if control.contradictions > 0 => Some(0),
            Some(clean) if clean + 1 < CLEAN_PASSES => Some(clean + 1),
            _ => None,
        };
        match (before, self.contradicted) {
            (None, Some(_)) => Some(Turn::Contradicted),
            (Some(_), None) => Some(Turn::Settled),
            _ => None,
        }
    }

    /// Whether the answers have recovered, or Ready nodes confirm them.
    fn may_release(&self, findings: &Findings) -> bool {
        let Control { found, contradictions, unsettled, .. } = &findings.control;
        let borne_out = !found.is_empty() && *contradictions == 0 && *unsettled == 0;
        let recovered = findings.absent.len() + findings.uncertain <= self.places.room(Count::Share);
        recovered || (borne_out && !self.is_contradicted())
    }

    fn allot(&mut self, now: Instant, findings: &Findings) -> Ruling {
        let mut ripe = self.ripe(&findings.absent);
        if findings.control.ready == 0 {
            let is_fresh = |evidence: &&&Evidence| !evidence.vouched && !self.places.has(&evidence.uid);
            let fresh = ripe.iter().filter(is_fresh).count();
            self.latched |= fresh > self.places.room(Count::Share);
        }
        let is_alive = |uid: &str| self.suspects.get(uid).is_some_and(|suspect| suspect.alive);
        ripe.sort_by_key(|evidence| (is_alive(&evidence.uid), &evidence.uid));
        let mut ruling = Ruling::default();
        for evidence in ripe {
            match self.holds_back(now, evidence, &findings.control) {
                Some(rule) => drop(ruling.held_back.insert(evidence.uid.clone(), rule)),
                None => drop(ruling.delete.insert(evidence.uid.clone())),
            }
        }
        ruling
    }

    fn ripe<'a>(&self, absent: &'a [Evidence]) -> Vec<&'a Evidence> {
        let is_ripe = |evidence: &&Evidence| {
            let suspect = self.suspects.get(&evidence.uid);
            suspect.is_some_and(|suspect| suspect.confirmations >= self.rules.confirmations)
        };
        absent.iter().filter(is_ripe).collect()
    }

    /// `None` if the node may be deleted, and has its place.
    fn holds_back(&mut self, now: Instant, evidence: &Evidence, control: &Control) -> Option<Rule> {
        if evidence.vouched {
            return None;
        }
        if self.is_contradicted() {
            return Some(Rule::Contradiction);
        }
        if self.latched {
            return Some(Rule::Latch);
        }
        let (count, rule) = match control {
            // More than the share would have latched.
            Control { ready: 0, .. } => (Count::Share, Rule::Latch),
            Control { found, .. } if found.is_empty() => return Some(Rule::NoneFound),
            Control { unsettled, .. } if *unsettled > 0 && self.is_new(now, &evidence.uid) => {
                return Some(Rule::Unsettled);
            }
            _ if evidence.given_up => return None,
            Control { found, .. } if found.contains(&evidence.zone) => (Count::Pace, Rule::Pace),
            _ => (Count::Share, Rule::Share),
        };
        (!self.places.take(&evidence.uid, count, now)).then_some(rule)
    }

    fn is_new(&self, now: Instant, uid: &str) -> bool {
        let suspect = self.suspects.get(uid);
        suspect.is_none_or(|suspect| now.saturating_duration_since(suspect.since) < SETTLE)
    }
}

impl Suspect {
    fn new(now: Instant, observed_at: Timestamp) -> Self {
        Self {
            confirmations: 1,
            since: now,
            last: now,
            first_observed: observed_at,
            last_observed: observed_at,
            alive: false,
        }
    }

    /// Counts the answer, unless the provider had that observation before it was asked again.
    fn confirm(&mut self, now: Instant, spacing: Duration, observed_at: Timestamp) {
        if now.saturating_duration_since(self.last) >= spacing && observed_at > self.last_observed {
            self.confirmations = self.confirmations.saturating_add(1);
            self.last = now;
            self.last_observed = observed_at;
        }
    }
}

#[cfg(test)]
mod tests;
