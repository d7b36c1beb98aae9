//! Stands before every deletion of a Node. Pure: time is an argument.
//!
//! In: what each pass over one provider's nodes found. Out: which nodes may be deleted now, and which are held back. The
//! answers are believed only when they repeat themselves, and not at all when they would take away more than a share of
//! the nodes: then the guard latches, and deletes nothing more until the answers recover. A person may vouch for single nodes.
//!
//! ```text
//!             absent, old enough          k times, a period apart           room in the window
//!   node ─────────────────────► suspect ──────────────────────► ripe ──┬──────────────────────► deleted
//!     ▲                            │                                   │ no room
//!     └── any other answer, or ────┘                                   ▼
//!         a provider that is not well                        latched: held back
//! ```

mod window;

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use tokio::time::Instant;

use window::Peak;

/// What has to hold before a node goes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rules {
    /// Younger nodes are not deleted.
    pub(super) grace: Duration,
    /// So many answers in a row have to say that it is absent.
    pub(super) confirmations: u32,
    /// They have to be so far apart.
    pub(super) spacing: Duration,
    /// Such a part of the nodes may go within the window, but always one.
    pub(super) max_share: f64,
    /// See above.
    pub(super) window: Duration,
}

/// What one pass found.
#[derive(Debug, Clone, Default)]
pub(super) struct Findings {
    /// How many nodes the provider has.
    pub(super) total: usize,
    /// The nodes that are not ready and, on good authority, have no machine.
    pub(super) absent: Vec<Evidence>,
    /// How many nodes that are not ready nothing certain is known of.
    pub(super) uncertain: usize,
    /// Whether nodes still show that they were held back, as by a former process.
    pub(super) held_back_before: bool,
}

/// A node that has no machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Evidence {
    pub(super) uid: String,
    /// How old the node is.
    pub(super) age: Duration,
    /// A person says that it is really gone.
    pub(super) vouched: bool,
}

/// What may be done now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ruling {
    /// These may be deleted, now and only now.
    pub(super) delete: HashSet<String>,
    /// These would be, but are held back.
    pub(super) held_back: HashSet<String>,
    /// The guard has just latched, or been released.
    pub(super) turned: Option<Turn>,
}

/// A change of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Latched,
    Released,
}

/// The guard of one provider's nodes.
#[derive(Debug)]
pub(super) struct Guard {
    rules: Rules,
    suspects: HashMap<String, Suspect>,
    /// When a deletion was allowed, by uid. A retry takes no second place.
    granted: HashMap<String, Instant>,
    /// The most nodes there were within the window.
    peak: Peak,
    latched: bool,
    first_pass: bool,
}

#[derive(Debug)]
struct Suspect {
    confirmations: u32,
    last: Instant,
}

impl Guard {
    pub(super) fn new(rules: Rules) -> Self {
        let peak = Peak::within(rules.window);
        let (suspects, granted) = (HashMap::new(), HashMap::new());
        Self { rules, suspects, granted, peak, latched: false, first_pass: true }
    }

    /// Whether nothing is deleted that no person vouched for.
    pub(super) fn is_latched(&self) -> bool {
        self.latched
    }

    /// Deletions that a former process allowed, or another one beside us.
    pub(super) fn recall(&mut self, grants: &HashMap<String, Instant>) {
        for (uid, at) in grants {
            self.granted.entry(uid.clone()).or_insert(*at);
        }
    }

    /// These were allowed and not carried out.
    pub(super) fn revoke<'a>(&mut self, uids: impl Iterator<Item = &'a str>) {
        for uid in uids {
            self.granted.remove(uid);
        }
    }

    /// When which deletion was allowed within the window.
    pub(super) fn grants(&self) -> &HashMap<String, Instant> {
        &self.granted
    }

    /// The provider was not well for some of the time: what it said before counts no more.
    pub(super) fn distrust(&mut self) {
        self.suspects.clear();
    }

    /// Rules on what a pass found. The provider has to have been well for the whole of it.
    pub(super) fn rule(&mut self, now: Instant, findings: &Findings) -> Ruling {
        self.peak.note(now, findings.total);
        let window = self.rules.window;
        self.granted.retain(|_, at| now.saturating_duration_since(*at) < window);
        let was_latched = self.latched;
        // A former process may have latched and been replaced: a new one is no less careful.
        self.latched |= std::mem::take(&mut self.first_pass) && findings.held_back_before;
        if self.latched && findings.absent.len() + findings.uncertain <= self.room() {
            self.latched = false;
            self.suspects.clear();
            return Ruling { turned: Some(Turn::Released), ..Ruling::default() };
        }
        let mut ruling = self.allot(now, findings);
        ruling.turned = (self.latched && !was_latched).then_some(Turn::Latched);
        ruling
    }

    fn allot(&mut self, now: Instant, findings: &Findings) -> Ruling {
        let (vouched, mut rest): (Vec<_>, Vec<_>) =
            self.ripe(now, &findings.absent).into_iter().partition(|evidence| evidence.vouched);
        let fresh = rest.iter().filter(|evidence| !self.granted.contains_key(&evidence.uid)).count();
        self.latched |= fresh > self.room();
        let held_back = if self.latched { std::mem::take(&mut rest) } else { Vec::new() };
        for evidence in &rest {
            self.granted.entry(evidence.uid.clone()).or_insert(now);
        }
        let uids = |list: Vec<Evidence>| list.into_iter().map(|evidence| evidence.uid);
        Ruling {
            delete: uids(vouched).chain(uids(rest)).collect(),
            held_back: uids(held_back).collect(),
            turned: None,
        }
    }

    /// Counts the confirmations; those that have enough.
    fn ripe(&mut self, now: Instant, absent: &[Evidence]) -> Vec<Evidence> {
        let old: Vec<_> = absent.iter().filter(|evidence| evidence.age >= self.rules.grace).collect();
        let uids: HashSet<_> = old.iter().map(|evidence| evidence.uid.as_str()).collect();
        self.suspects.retain(|uid, _| uids.contains(uid.as_str()));
        let mut ripe = Vec::new();
        for evidence in old {
            let suspect = self
                .suspects
                .entry(evidence.uid.clone())
                .and_modify(|suspect| suspect.confirm(now, self.rules.spacing))
                .or_insert(Suspect { confirmations: 1, last: now });
            if suspect.confirmations >= self.rules.confirmations {
                ripe.push(evidence.clone());
            }
        }
        ripe
    }

    /// How many more may go within this window.
    fn room(&self) -> usize {
        share_of(self.peak.largest(), self.rules.max_share).max(1).saturating_sub(self.granted.len())
    }
}

impl Suspect {
    fn confirm(&mut self, now: Instant, spacing: Duration) {
        if now.saturating_duration_since(self.last) >= spacing {
            self.confirmations = self.confirmations.saturating_add(1);
            self.last = now;
        }
    }
}

/// A share of a number of nodes, never rounded up.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a cluster has some thousands of nodes, and the share is between 0 and 1"
)]
fn share_of(nodes: usize, share: f64) -> usize {
    (nodes as f64 * share) as usize
}

#[cfg(test)]
mod tests;
