//! Guards every deletion of a Node. Pure: time and randomness are arguments.
//!
//! In: what each check of one provider's nodes found, and what [`super::witnesses`] say: Ready nodes that it was asked about,
//! and Leases of those that it denies. Out: which nodes may be deleted now, as [`super::places`] allow, and which rule holds
//! back each of the others. An answer is believed only when it repeats, and only as far as the witnesses bear it out. A
//! person may vouch for single nodes.
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
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    decide::{Evidence, zone},
    places::{Grants, Places},
    rule::Rule,
    witnesses::{Contradictions, Control},
};
use ccm_kube::node::Node;

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
    contradictions: Contradictions,
}

#[derive(Debug)]
struct Suspect {
    confirmations: u32,
    since: Instant,
    /// Since then nothing has contradicted the denial.
    undisputed: Instant,
    last: Instant,
    last_observed: Timestamp,
    /// When its kubelet was last not found silent, or the apiserver refused, as it was about to be deleted.
    stood_back: Option<Instant>,
}

impl Guard {
    pub(super) fn new(rules: Rules) -> Self {
        let (suspects, contradictions) = (HashMap::new(), Contradictions::default());
        Self { rules, suspects, places: Places::default(), contradictions }
    }

    pub(super) fn is_contradicted(&self) -> bool {
        self.contradictions.zones().next().is_some()
    }

    /// Loads deletions allowed by former or concurrent processes.
    pub(super) fn recall(&mut self, grants: &Grants) {
        self.places.granted.join(grants);
    }

    /// The deletions that were allowed, for as long as they count.
    pub(super) fn grants(&self) -> &Grants {
        &self.places.granted
    }

    /// Takes back a deletion that was allowed but not carried out. Whoever stands back takes turns with the others that do, after
    /// all that do not.
    pub(super) fn revoke(&mut self, uid: &str, stands_back: Option<Instant>) {
        self.places.granted.remove(uid);
        if let Some(suspect) = self.suspects.get_mut(uid) {
            suspect.stood_back = stands_back.or(suspect.stood_back);
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
        self.contradictions.weigh(now, control, self.rules.window);
        let contradicted: HashSet<_> = self.contradictions.zones().cloned().collect();
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
        Self { confirmations: 1, since, undisputed, last, last_observed, stood_back: None }
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
