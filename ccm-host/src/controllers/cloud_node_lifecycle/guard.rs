//! Stands before every deletion of a Node. Pure: time is an argument.
//!
//! In: what each look at one provider's nodes found, candidates and control group alike. Out: which nodes may be deleted
//! now, and by which rule each of the others is held back. An answer is believed only when it repeats itself, and only as
//! far as Ready nodes bear it out. A person may vouch for single nodes.
//!
//! ```text
//!           absent, old enough         k looks in a row
//!   node ────────────────────► suspect ────────────────► ripe: what of the Ready nodes?
//!     ▲                           │                        │
//!     └── any other answer, or ───┘                        ├─ one denied whose kubelet is alive ─► held: contradiction
//!         a provider that is not well                      ├─ asked about, none found ───────────► held
//!                                                          ├─ one of its zone found ─────────────► goes, at a pace
//!                                                          ├─ only ones of other zones found ────► goes, a share a window
//!                                                          └─ there are none ─► goes, a share; more than that: latch
//! ```

mod places;
mod rule;
mod window;

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;

use places::Places;
pub(super) use places::{Count, Grant};
pub(super) use rule::Rule;

/// So many passes in a row without a contradiction end it.
const CLEAN_PASSES: u32 = 2;
/// So long a suspect waits for Leases of Ready nodes that are denied: two renewals of a kubelet at default settings.
const SETTLE: Duration = Duration::from_secs(20);

/// What has to hold before a node goes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rules {
    /// Younger nodes are not deleted.
    pub(super) grace: Duration,
    /// So many answers in a row have to say that it is absent.
    pub(super) confirmations: u32,
    /// They have to be so far apart.
    pub(super) spacing: Duration,
    /// Where no Ready node vouches for the provider, such a part of the nodes may go within the window, but always one.
    pub(super) max_share: f64,
    /// See above.
    pub(super) window: Duration,
}

/// What one pass found.
#[derive(Debug, Clone, Default)]
pub(super) struct Findings {
    /// How many nodes the provider has.
    pub(super) total: usize,
    /// The nodes that are not ready and, on good authority, have no instance.
    pub(super) absent: Vec<Evidence>,
    /// How many nodes that are not ready nothing certain is known of.
    pub(super) uncertain: usize,
    /// What was said of Ready nodes in the last look.
    pub(super) control: Control,
    /// By which rule nodes still show that they were held back, as by a former process.
    pub(super) held_before: HashSet<Rule>,
}

/// What was said of Ready nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Control {
    /// How many the provider has.
    pub(super) ready: usize,
    /// The zones in which one was found.
    pub(super) found: HashSet<String>,
    /// How many it denies although their kubelets are alive.
    pub(super) contradictions: usize,
    /// How many it denies of which that is not known yet.
    pub(super) unsettled: usize,
}

/// A node that has no instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Evidence {
    pub(super) uid: String,
    pub(super) zone: String,
    /// How old the node is.
    pub(super) age: Duration,
    /// A person says that it is really gone.
    pub(super) vouched: bool,
    /// An autoscaler or a person has given the node up already.
    pub(super) given_up: bool,
    /// When its instance was looked for.
    pub(super) observed_at: Timestamp,
}

/// What may be done now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ruling {
    /// These may be deleted, now and only now.
    pub(super) delete: HashSet<String>,
    /// These would be, but are held back.
    pub(super) held_back: HashMap<String, Rule>,
    /// What has just begun or ended.
    pub(super) turns: Vec<Turn>,
}

/// A change of the guard.
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
    /// Its kubelet was alive when it would have been deleted.
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

    /// Deletions that a former process allowed, or another one beside us.
    pub(super) fn recall(&mut self, grants: &HashMap<String, Grant>) {
        self.places.recall(grants);
    }

    /// This one was allowed and not carried out.
    pub(super) fn revoke(&mut self, uid: &str) {
        self.places.revoke(uid);
    }

    /// This one was allowed and not carried out: its kubelet is alive. Others come first from now on.
    pub(super) fn found_alive(&mut self, uid: &str) {
        self.places.revoke(uid);
        if let Some(suspect) = self.suspects.get_mut(uid) {
            suspect.alive = true;
        }
    }

    /// Which deletions were allowed, for as long as they count.
    pub(super) fn grants(&self) -> &HashMap<String, Grant> {
        self.places.granted()
    }

    /// The provider was not well for some of the time: what it said before counts no more.
    pub(super) fn distrust(&mut self) {
        self.suspects.clear();
    }

    /// Whether the provider denied this one in the look before.
    pub(super) fn is_suspect(&self, uid: &str) -> bool {
        self.suspects.contains_key(uid)
    }

    /// When the provider first denied this one.
    pub(super) fn first_denied(&self, uid: &str) -> Option<Timestamp> {
        self.suspects.get(uid).map(|suspect| suspect.first_observed)
    }

    /// Whether another look is needed before anything can be ruled.
    pub(super) fn wants_another_look(&self, control_was_asked: bool) -> bool {
        let unripe = |suspect: &Suspect| suspect.confirmations < self.rules.confirmations;
        !self.suspects.is_empty() && (!control_was_asked || self.suspects.values().any(unripe))
    }

    /// Counts what one look found. The provider has to have been well for the whole of it.
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

    /// Rules on what a pass found, after its looks were counted.
    pub(super) fn rule(&mut self, now: Instant, findings: &Findings) -> Ruling {
        self.places.note(now, findings.total);
        let mut turns = Vec::new();
        if std::mem::take(&mut self.first_pass) {
            // A former process may have been replaced while it held nodes back: a new one is no less careful.
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

    /// Answers have recovered, or Ready nodes bear them out.
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

    /// None: it may go, and has its place.
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

    /// What the provider had seen before it was asked again confirms nothing.
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
