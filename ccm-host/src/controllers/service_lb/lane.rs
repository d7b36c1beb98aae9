//! What is known of each Service's balancer, and who is at it.
//!
//! In: what was sent, answered and listed. Out: the facts that [`decide`](mod@super::decide) compares with what is wanted. A lane is
//! taken out for the length of a run, so that nobody else changes it meanwhile. Nothing here outlives the process: after
//! a restart the lanes are filled from one list of the provider's balancers ([`super::sweep`]), which tells the digest of
//! what is applied, but not the Service.

mod table;

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::Instant;

pub(super) use table::{Lanes, Taken};

use super::{decide::Difference, metrics::NodeSync};
use crate::{
    cloud::ServiceCondition,
    kube::service::{Ingress, Service},
};

/// What is known of one Service's balancer.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    /// The Service as last seen; its uid is the balancer's natural key.
    pub(super) last: Arc<Service>,
    /// Name of the provider that has the balancer; none: not known which.
    pub(super) holder: Option<String>,
    /// Whether there is a balancer.
    pub(super) presence: Presence,
    /// The last digest that this process asked for, or that was listed: it tells the class for which a balancer that is
    /// ours beyond doubt was made. None: not known.
    pub(super) made_as: Option<String>,
    /// What was last applied wholly. None: not known.
    pub(super) applied: Option<Applied>,
    /// What may differ from that, since a later call failed, or has not ended.
    pub(super) doubt: Difference,
    /// What shall stand in the status, once an answer or a list said it.
    pub(super) ingress: Option<Vec<Ingress>>,
    /// Annotations of an answer that are not written yet; none: to be removed.
    pub(super) annotations: BTreeMap<String, Option<String>>,
    /// Conditions of an answer that are not written yet.
    pub(super) conditions: BTreeMap<String, ServiceCondition>,
    /// The last attempt, if it is not to be repeated at once.
    pub(super) attempt: Option<Attempt>,
    /// Likewise, of an attempt to give what is applied other nodes while the wanted state has to wait.
    pub(super) upkeep: Option<Attempt>,
    /// Everything is as wanted.
    pub(super) settled: bool,
    /// The warning that was last written, so that it is written once.
    pub(super) warned: Option<String>,
    /// The wanted state whose beginning was told in an Event.
    pub(super) announced: Option<String>,
    /// Counts the time until the nodes that changed last stand behind this balancer, too.
    pub(super) node_sync: Option<Arc<NodeSync>>,
    /// Grows with each call that may change the balancer; tells whether a list is older than that.
    pub(super) turn: u64,
    sent: Option<Sent>,
}

/// What a balancer is known to be.
#[derive(Debug, Clone)]
pub(super) struct Applied {
    /// Over Service and backends.
    pub(super) digest: String,
    /// The Service that was applied. None: only its digest was listed.
    pub(super) service: Option<Arc<Service>>,
    /// The provider cannot give it other nodes by an update.
    pub(super) needs_ensure: bool,
}

impl Applied {
    /// Of which only the digest is known.
    pub(super) fn listed(digest: String) -> Self {
        Self { digest, service: None, needs_ensure: false }
    }
}

/// Whether a balancer exists, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Unknown,
    /// There is none: a complete list did not show it, or it was deleted.
    Absent,
    /// It was listed, or asked for.
    Present,
}

/// What was tried and shall not be tried again before its time.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub(super) intent: Intent,
    /// When it may be tried again; none: once the Service changes, or at the slow sweep.
    pub(super) until: Option<Instant>,
    /// It did not fail: the provider is at it.
    pub(super) in_progress: bool,
}

/// What can be tried.
#[derive(Debug, Clone)]
pub(super) enum Intent {
    /// To bring the balancer to the state with this digest.
    Apply(String),
    Remove,
}

/// The state that was last sent.
#[derive(Debug, Clone)]
struct Sent {
    digest: Option<String>,
    revision: u64,
}

impl Lane {
    /// A lane of which nothing is known.
    pub(super) fn new(service: Arc<Service>) -> Self {
        Self {
            last: service,
            holder: None,
            presence: Presence::Unknown,
            made_as: None,
            applied: None,
            doubt: Difference::Nothing,
            ingress: None,
            annotations: BTreeMap::new(),
            conditions: BTreeMap::new(),
            attempt: None,
            upkeep: None,
            settled: false,
            warned: None,
            announced: None,
            node_sync: None,
            turn: 0,
            sent: None,
        }
    }

    /// Whether the lane is about the Service of this uid.
    pub(super) fn is_of(&self, uid: &str) -> bool {
        self.last.uid == uid
    }

    /// The revision under which a wanted state (none: gone) is sent. It grows when the state differs from the one sent
    /// before, and is never less than the clock, so that it also grows over restarts.
    pub(super) fn revision(&mut self, digest: Option<&str>, wall_micros: u64) -> u64 {
        let last = match &self.sent {
            Some(sent) if sent.digest.as_deref() == digest => return sent.revision,
            Some(sent) => sent.revision,
            None => 0,
        };
        let revision = wall_micros.max(last + 1);
        self.sent = Some(Sent { digest: digest.map(str::to_owned), revision });
        revision
    }

    /// The provider knows a newer revision: the next one is new even if the state is the same.
    pub(super) fn forget_sent_state(&mut self) {
        if let Some(sent) = &mut self.sent {
            sent.digest = Some(String::new());
        }
    }

    /// Notes that a call begins that may change this of the balancer.
    pub(super) fn begin_turn(&mut self, doubt: Difference) {
        self.turn += 1;
        self.settled = false;
        self.doubt = self.doubt.max(doubt);
    }

    /// Notes that the balancer is wholly as this Service wants it.
    pub(super) fn is_applied(&mut self, digest: String, service: &Arc<Service>) {
        self.applied = Some(Applied { digest, service: Some(Arc::clone(service)), needs_ensure: false });
        self.doubt = Difference::Nothing;
        self.upkeep = None;
    }

    /// Notes that the balancer has other nodes, and is otherwise what it was.
    pub(super) fn has_nodes(&mut self, digest: String) {
        if let Some(applied) = &mut self.applied {
            applied.digest = digest;
        }
        if self.doubt == Difference::Backends {
            self.doubt = Difference::Nothing;
        }
        self.upkeep = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::fixtures::service;

    fn lane() -> Lane {
        Lane::new(Arc::new(service("web")))
    }

    #[test]
    fn a_revision_grows_only_with_the_wanted_state() {
        let mut lane = lane();
        assert_eq!(lane.revision(Some("a"), 1_000), 1_000, "starts at the clock");
        assert_eq!(lane.revision(Some("a"), 2_000), 1_000, "the same call again");
        assert_eq!(lane.revision(Some("b"), 2_000), 2_000);
        assert_eq!(lane.revision(Some("a"), 1_500), 2_001, "grows though the clock went back");
        assert_eq!(lane.revision(None, 3_000), 3_000, "to be gone is a state");
        assert_eq!(lane.revision(None, 4_000), 3_000);
    }

    #[test]
    fn a_stale_revision_is_replaced_by_a_new_one() {
        let mut lane = lane();
        lane.revision(Some("a"), 1_000);
        lane.forget_sent_state();
        assert_eq!(lane.revision(Some("a"), 500), 1_001);
        assert_eq!(lane.revision(Some("a"), 2_000), 1_001);
    }
}
