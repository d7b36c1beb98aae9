//! Decides for one balancer whether anything still wants it where it is: a pure function of what was observed.
//!
//! In: its row, the Service that has its name now, and the Service's owner. Out: a [`Fate`]. A balancer whose Service was
//! recreated, vanished, changed its type or its provider, and one that was found without a Service, are all the same: a
//! row that no Service wants here. What is published is never removed as left behind.

use std::sync::Arc;

use super::{
    plan::Owner,
    record::Record,
    row::{Doubt, Goal, Known, Row},
    service::{has_finalizer, is_load_balancer},
};
use ccm_cloud::{PROVIDER_ANNOTATION, is_for_another_class};
use ccm_kube::service::{Ingress, Service};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Keep,
    /// There is no balancer, and nothing refers to the row.
    Drop,
    Remove(Why),
}

/// Why a balancer is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The Service is being deleted, or is no longer of type LoadBalancer.
    Unwanted,
    /// It was made for a class of ours, and the class now belongs to another implementation.
    Handover,
    /// The Service belongs to another provider now.
    Moved,
    /// It belongs to a former Service of the same name.
    Former,
    /// The Service vanished before its balancer was cleaned up.
    Vanished,
    /// Another provider serves the Service with a balancer of its own.
    LeftBehind,
    /// A list shows it, and it has no Service.
    Orphaned,
}

impl Why {
    /// Whether the Service of its name has to wait for it.
    pub(super) fn comes_first(self) -> bool {
        !self.is_tidying()
    }

    /// Whether nothing waits for it.
    pub(super) fn is_tidying(self) -> bool {
        matches!(self, Self::LeftBehind | Self::Orphaned)
    }

    /// Whether its Service exists, and has to be freed once the balancer is gone.
    pub(super) fn is_of_service(self) -> bool {
        matches!(self, Self::Unwanted | Self::Handover | Self::Moved)
    }

    /// Whether only a live read shows that the Service does not exist.
    pub(super) fn needs_proof(self) -> bool {
        matches!(self, Self::Vanished | Self::Orphaned)
    }
}

/// What a fate depends on, besides the row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting<'a> {
    /// The Service that has the row's name now.
    pub(super) service: Option<&'a Service>,
    pub(super) owner: &'a Owner,
    /// The balancers of that Service, at all providers.
    pub(super) own: &'a [Arc<Row>],
    /// The owner can be asked.
    pub(super) owner_answers: bool,
    /// Remove what two sweeps found without a Service.
    pub(super) delete_orphans: bool,
}

pub(super) fn fate(row: &Row, setting: &Setting<'_>) -> Fate {
    match setting.service.filter(|service| *service.uid == *row.at.uid) {
        Some(service) => of_service(row, service, setting),
        None if row.last.is_none() => of_orphan(row, setting),
        None if may_be_left(row) => {
            Fate::Remove(if setting.service.is_some() { Why::Former } else { Why::Vanished })
        }
        None => Fate::Drop,
    }
}

fn of_orphan(row: &Row, setting: &Setting<'_>) -> Fate {
    match &row.orphan {
        Some(orphan) if setting.delete_orphans && orphan.sightings > 1 => Fate::Remove(Why::Orphaned),
        Some(_) => Fate::Keep,
        None => Fate::Drop,
    }
}

fn of_service(row: &Row, service: &Service, setting: &Setting<'_>) -> Fate {
    if row.is_removed() {
        // Its addresses may still be published.
        return Fate::Keep;
    }
    let wants_one = is_load_balancer(service) && !service.is_deleting();
    match setting.owner {
        Owner::Others => {
            let class = service.spec.load_balancer_class.as_deref();
            // A provider that no longer owns a class must not destroy what it made.
            let is_handed_over = row.made_as().is_some_and(|digest| is_for_another_class(digest, class));
            let is_cleaned_up = service.is_deleting() && has_finalizer(service) && row.is_present();
            let is_ours = is_load_balancer(service) && is_handed_over;
            if is_ours || is_cleaned_up { Fate::Remove(Why::Handover) } else { Fate::Keep }
        }
        // For what only a list says, which may be wrong, and which its provider may never delete, nobody waits.
        _ if !wants_one && !is_proven(row, service) && had_elsewhere(row, service, setting.own) => {
            Fate::Remove(Why::LeftBehind)
        }
        _ if !wants_one => Fate::Remove(Why::Unwanted),
        Owner::Ours(name) if **name != *row.at.provider => elsewhere(row, service, (setting, name)),
        Owner::Ours(_) | Owner::Misnamed { .. } | Owner::Undecided(_) => Fate::Keep,
    }
}

/// At a provider that does not own the Service.
fn elsewhere(row: &Row, service: &Service, (setting, owner): (&Setting<'_>, &str)) -> Fate {
    let is_named = service.annotations.get(PROVIDER_ANNOTATION).is_some();
    // A list lacks what is half removed, too.
    let is_going = is_proven(row, service) && (is_named || row.tried.contains_key(&Goal::Gone));
    if !row.is_present() && !is_going {
        return Fate::Drop;
    }
    let at_owner = setting.own.iter().find(|other| *other.at.provider == *owner);
    let here = row.status.ingress.as_deref().unwrap_or_default();
    match at_owner.filter(|at_owner| at_owner.is_present()) {
        // Two providers of one cloud see the same balancer, as while one replaces the other.
        Some(at_owner) if !is_another(here, at_owner.status.ingress.as_deref().unwrap_or_default()) => {
            Fate::Keep
        }
        Some(at_owner) if is_served(at_owner) && is_another(here, &service.ingress) => {
            Fate::Remove(Why::LeftBehind)
        }
        // Until its new provider can make another one, it has this one.
        at_owner if setting.owner_answers && (at_owner.is_none() || is_named) && was_had(row, service) => {
            Fate::Remove(Why::Moved)
        }
        _ => Fate::Keep,
    }
}

/// Whether the Service certainly has, or had, its balancer at another provider.
fn had_elsewhere(row: &Row, service: &Service, own: &[Arc<Row>]) -> bool {
    let was_there = |other: &Row| other.is_removed() || other.is_present();
    own.iter().any(|other| other.at != row.at && was_there(other) && is_proven(other, service))
}

/// Whether the Service publishes an address of this balancer, which anybody can read and list.
pub(super) fn is_published(row: &Row, service: &Service) -> bool {
    let here = row.status.ingress.as_deref().unwrap_or_default();
    here.iter().any(|entry| is_among(&service.ingress, entry))
}

/// Whether the Service had this balancer, as more than the list of a provider says that does not own the Service. On that
/// word alone, nothing is taken from the Service, and it waits for nothing.
pub(super) fn was_had(row: &Row, service: &Service) -> bool {
    is_proven(row, service) || Record::of(service).is_none() && is_published(row, service)
}

/// The same without what is published.
pub(super) fn is_proven(row: &Row, service: &Service) -> bool {
    row.is_proven || Record::of(service).is_some_and(|record| *record.provider == *row.at.provider)
}

fn is_served(row: &Row) -> bool {
    row.applied().is_some_and(|applied| applied.doubt == Doubt::default())
}

/// Whether these are certainly the addresses of two balancers.
fn is_another(one: &[Ingress], other: &[Ingress]) -> bool {
    !one.is_empty() && !other.is_empty() && !one.iter().any(|entry| is_among(other, entry))
}

/// Whether one of the entries has the same address.
pub(super) fn is_among(entries: &[Ingress], one: &Ingress) -> bool {
    entries.iter().any(|other| (&other.ip, &other.hostname) == (&one.ip, &one.hostname))
}

/// Whether there may be a balancer that a restarted host could not find by a finalizer.
fn may_be_left(row: &Row) -> bool {
    match row.known {
        Known::Asked { .. } | Known::Applied(_) => true,
        Known::Unsure => row.last.as_deref().is_some_and(has_finalizer),
        Known::Absent | Known::Removed => false,
    }
}

#[cfg(test)]
mod tests;
