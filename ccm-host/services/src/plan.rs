//! Decides the next step for one Service: a pure function of what was observed.
//!
//! In: the Service, its owner, and the row of its balancer there. Out: one [`Plan`], with the finished request where a
//! provider is to be asked. A Service has two goals, in this order: its balancer as it says, and, while that has to wait,
//! the balancer as it was applied, with the current nodes. Removals are decided row by row ([`fate`](mod@super::fate)).

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    row::{Applied, Attempt, Difference, End, Goal, Row},
    service::{has_finalizer, is_load_balancer},
};
use ccm_cloud::{ProviderStatus, differ_in_backends_only, with_backends_of};
use ccm_kube::service::Service;

/// Everything that a plan depends on.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) service: Arc<Service>,
    pub(super) owner: Owner,
    /// The calls that the owner may be sent. The return of one that is away requeues the Service.
    pub(super) standing: ProviderStatus,
    /// The balancer at the owner.
    pub(super) row: Option<Arc<Row>>,
    /// What has to happen first to balancers of this name.
    pub(super) others: Others,
    /// The state to bring about; `None` while it cannot be determined.
    pub(super) wanted: Option<Wanted>,
    /// Finalizer and status are as they should be.
    pub(super) published: bool,
    /// There is no place for another Ensure.
    pub(super) is_full: bool,
    pub(super) now: Instant,
}

/// The owner of a Service. For one that wants no balancer, whoever may have one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Owner {
    /// This provider, by name.
    Ours(String),
    /// No provider of this host: the class belongs to another implementation.
    Others,
    /// Its annotation names no provider that could serve it, or the one that has its balancer does not look after its class.
    Misnamed {
        /// Whether some provider has its balancer, and looks after it meanwhile.
        kept: bool,
        /// The problem and the remedy.
        why: String,
    },
    /// Unknown until a provider reports. Holds what is missing.
    Undecided(String),
}

/// The other balancers of the Service's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Others {
    None,
    /// They are to be removed before anything else happens to the Service.
    Leaving,
    /// All of the Service's own are removed.
    Removed,
    /// This provider may have one, and its balancers are not listed yet.
    MayBeAt(String),
}

/// The wanted state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Digest over Service and backends.
    pub(super) digest: String,
    /// Why no provider may be asked for this state at all.
    pub(super) refusal: Option<String>,
}

/// The next step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Plan {
    /// Everything is as wanted.
    Rest,
    /// The Service concerns no provider of this host.
    Leave,
    /// Nothing to do in the cloud; finalizer or status must be written.
    Publish,
    Ask(Ask),
    /// Nothing is left in the cloud: free the Service, and its status if it is ours.
    Free {
        status: bool,
    },
    /// The finalizer protects a balancer, but nothing is known of one: find who may have it.
    Search,
    /// Only the balancer's owner may clean up: ask the providers whose it is.
    AskOwner,
    Wait(Wait),
}

/// A request to the owner.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ask {
    pub(super) goal: Goal,
    pub(super) verb: Verb,
    pub(super) service: Arc<Service>,
    pub(super) digest: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Ensure,
    Update,
}

/// Why nothing is done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) until: Until,
    pub(super) why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// The Service is invalid: its owner must change it.
    Corrected,
    /// The Service changes, or a sweep gives it a second chance.
    Change,
    At(Instant),
    /// A provider reports, is listed, or returns.
    Provider,
    /// A place is free.
    Slot,
    /// Other balancers are removed, or a call ends.
    Removal,
}

/// The distance of updates that a provider refuses, if the nodes change meanwhile.
const REFUSED: Duration = Duration::from_secs(5);

/// How long other nodes wait while the provider is working on the balancer.
const UNDER_WAY: Duration = Duration::from_secs(15);

impl Wait {
    pub(super) fn new(until: Until, why: impl Into<String>) -> Self {
        Self { until, why: why.into() }
    }
}

pub(super) fn plan(view: &View) -> Plan {
    let service = &*view.service;
    if view.others == Others::Leaving {
        return Plan::Wait(Wait::new(Until::Removal, "another load balancer of this name is removed first"));
    }
    if service.is_deleting() || !is_load_balancer(service) {
        return clean_up(view);
    }
    match &view.owner {
        Owner::Undecided(why) => Plan::Wait(Wait::new(Until::Provider, why)),
        Owner::Others if view.others == Others::Removed => Plan::Free { status: false },
        Owner::Others => Plan::Leave,
        Owner::Misnamed { kept: false, why } => Plan::Wait(Wait::new(Until::Corrected, why)),
        Owner::Misnamed { kept: true, why } => match bring_about(view) {
            Plan::Rest | Plan::Publish => Plan::Wait(Wait::new(Until::Corrected, why)),
            needed => needed,
        },
        Owner::Ours(_) => bring_about(view),
    }
}

/// Frees a Service that wants no balancer, once none is left.
fn clean_up(view: &View) -> Plan {
    let service = &*view.service;
    if view.others == Others::Removed {
        return Plan::Free { status: view.owner != Owner::Others };
    }
    if !has_finalizer(service) {
        return Plan::Leave;
    }
    if let Others::MayBeAt(provider) = &view.others {
        return Plan::Wait(may_be_at(provider));
    }
    match (&view.owner, &view.standing) {
        (Owner::Undecided(why), _) => Plan::Wait(Wait::new(Until::Provider, why)),
        (Owner::Others, _) if !service.is_deleting() => Plan::Leave,
        (Owner::Others, ProviderStatus::Disconnected(why) | ProviderStatus::Frozen(why)) => {
            Plan::Wait(Wait::new(Until::Provider, why))
        }
        (Owner::Others, ProviderStatus::Serving) => Plan::AskOwner,
        (Owner::Ours(_) | Owner::Misnamed { .. }, _) => Plan::Search,
    }
}

fn bring_about(view: &View) -> Plan {
    if let ProviderStatus::Disconnected(why) = &view.standing {
        return Plan::Wait(Wait::new(Until::Provider, why));
    }
    let Some(wanted) = &view.wanted else {
        return Plan::Wait(Wait::new(Until::Provider, "the load balancers have not been listed yet"));
    };
    if let Others::MayBeAt(provider) = &view.others {
        return Plan::Wait(may_be_at(provider));
    }
    let row = view.row.as_deref();
    let difference = row.map_or(Difference::Service, |row| row.difference(&wanted.digest));
    if row.is_some_and(|row| row.is_elsewhere() && held(row, wanted, view.now).is_some()) {
        return Plan::Rest;
    }
    if difference == Difference::Nothing {
        return if view.published { Plan::Rest } else { Plan::Publish };
    }
    let verb = if difference == Difference::Backends { Verb::Update } else { Verb::Ensure };
    let ask =
        Ask { goal: Goal::Wanted, verb, service: Arc::clone(&view.service), digest: wanted.digest.clone() };
    let wait = match (&wanted.refusal, row.and_then(|row| held(row, wanted, view.now))) {
        (Some(why), _) => Wait::new(Until::Corrected, why),
        (None, Some(wait)) => wait,
        (None, None) if view.is_full && verb == Verb::Ensure => Wait::new(
            Until::Slot,
            "as many load balancers as allowed are being changed: it waits for its turn",
        ),
        (None, None) => return Plan::Ask(ask),
    };
    // If only the nodes differ, their own update is what failed.
    let failed_itself = difference == Difference::Backends && wanted.refusal.is_none();
    match row.filter(|_| !failed_itself).and_then(|row| upkeep(view, row, wanted)) {
        Some(Ok(ask)) => Plan::Ask(ask),
        Some(Err(until)) => Plan::Wait(sooner(wait, until)),
        None => Plan::Wait(wait),
    }
}

fn may_be_at(provider: &str) -> Wait {
    let why = format!(
        "provider {provider:?} may have its load balancer, and has not listed its load balancers yet"
    );
    Wait::new(Until::Provider, why)
}

/// Why the wanted state must not be asked for now.
fn held(row: &Row, wanted: &Wanted, now: Instant) -> Option<Wait> {
    let attempt = row.tried.get(&Goal::Wanted)?;
    let is_as_tried = attempt.digest == wanted.digest;
    // Only a change of the Service permits a new attempt at once; a change of nodes waits with it.
    if !is_as_tried && !differ_in_backends_only(&attempt.digest, &wanted.digest) {
        return None;
    }
    let until = match attempt.until {
        // Other nodes are a change of what was refused.
        None if attempt.of_backends && !is_as_tried => Some(attempt.at + REFUSED),
        // They do not wait for what may take the cloud much longer than they do.
        Some(until) if attempt.end == End::InProgress && !is_as_tried => {
            Some(until.min(attempt.at + UNDER_WAY))
        }
        until => until,
    };
    let why = match attempt.end {
        End::InProgress => "the provider is working on the load balancer",
        End::Unknown => "the provider did not answer",
        End::Failed => "the last attempt failed",
        End::Elsewhere => "another implementation serves it, says the provider",
    };
    match until {
        None => Some(Wait::new(Until::Change, why)),
        Some(until) if until > now => Some(Wait::new(Until::At(until), why)),
        Some(_) => None,
    }
}

/// Keeps a change of the Service that fails or waits from pinning deleted nodes to the balancer, or keeping new ones
/// out. `None` if there is nothing to keep up; an error says when to try again.
fn upkeep(view: &View, row: &Row, wanted: &Wanted) -> Option<Result<Ask, Option<Instant>>> {
    let Applied { digest: applied, service, needs_ensure, doubt } = row.applied()?;
    let is_under_way = row.tried.get(&Goal::Wanted).is_some_and(|attempt| attempt.end == End::InProgress);
    let same = || doubt.backends.then(|| applied.clone());
    let digest = with_backends_of(applied, &wanted.digest).or_else(same).filter(|_| !is_under_way)?;
    let verb = if *needs_ensure { Verb::Ensure } else { Verb::Update };
    let service = match service {
        Some(service) => service,
        None if *needs_ensure => return None,
        // After a restart only the digest is known. An update replaces only the backends, so any version will do.
        None => &view.service,
    };
    match row.tried.get(&Goal::Upkeep) {
        Some(Attempt { until: None, digest: tried, .. }) if *tried == digest => return Some(Err(None)),
        Some(Attempt { until: Some(until), .. }) if *until > view.now => return Some(Err(Some(*until))),
        _ => {}
    }
    if verb == Verb::Ensure && view.is_full {
        return None;
    }
    Some(Ok(Ask { goal: Goal::Upkeep, verb, service: Arc::clone(service), digest }))
}

/// The wait that ends earlier.
fn sooner(wait: Wait, other: Option<Instant>) -> Wait {
    let until = match (wait.until, other) {
        (Until::At(one), Some(other)) => Until::At(one.min(other)),
        (Until::Change | Until::Corrected | Until::Slot, Some(other)) => {
            return Wait { until: Until::At(other), ..wait };
        }
        (until, _) => until,
    };
    Wait { until, ..wait }
}

#[cfg(test)]
mod tests;
