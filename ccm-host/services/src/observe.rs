//! Gathers what is known about one Service at one moment.
//!
//! In: caches, rows, and what the providers reported about themselves; no RPCs. Out: the view that
//! [`plan`](mod@super::plan) decides on, the fate of each balancer of that name, and the provider and the nodes to send.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Controller,
    fate::{Fate, Setting, Why, fate, is_proven, is_published, was_had},
    plan::{Others, Owner, View, Wanted},
    record::Record,
    row::{Known, Row, RowKey, Status},
    service::{has_finalizer, ip_mode, is_load_balancer},
};
use ccm_cloud::{
    BackendSet, Family, PROVIDER_ANNOTATION, Provider, ProviderStatus, ServiceOwner, is_for_another_class,
};
use ccm_kube::service::{ObjectKey, Service, source_ranges};

/// What is known about a name.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) owner: Owner,
    /// The provider to create or change the balancer.
    pub(super) maker: Option<Arc<dyn Provider>>,
    /// The balancers of that Service, at all providers.
    pub(super) own: Vec<Arc<Row>>,
    /// The balancers of the name, each with its fate.
    pub(super) rows: Vec<(Arc<Row>, Fate)>,
    /// `None` if the Service does not exist.
    pub(super) service: Option<Arc<Service>>,
}

impl Seen {
    pub(super) fn fate_of(&self, at: &RowKey) -> Fate {
        self.rows.iter().find(|(row, _)| row.at == *at).map_or(Fate::Keep, |(_, fate)| *fate)
    }

    /// The balancers to remove, and why.
    pub(super) fn to_remove(&self) -> impl Iterator<Item = (&RowKey, Why)> {
        self.rows.iter().filter_map(|(row, fate)| match fate {
            Fate::Remove(why) => Some((&row.at, *why)),
            Fate::Keep | Fate::Drop => None,
        })
    }

    pub(super) fn removes_any(&self) -> bool {
        self.to_remove().next().is_some()
    }
}

/// A Service that exists, and what an answer for it needs.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    pub(super) seen: &'a Seen,
    pub(super) view: View,
    pub(super) backends: Option<Arc<BackendSet>>,
    /// What is to be published.
    pub(super) status: Status,
    pub(super) record: Option<Record>,
}

/// How far a provider's balancers are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listing {
    Complete,
    Incomplete,
    /// It cannot list.
    Refused,
    /// The first attempts failed; it is still tried.
    Failed,
}

impl Listing {
    /// Whether it settles more of what the provider may have: a whole list does, and whoever can list no more says no more.
    pub(super) fn settles_more_than(self, other: Self) -> bool {
        let settles = |listing| match listing {
            Self::Complete => 2,
            Self::Refused => 1,
            Self::Incomplete | Self::Failed => 0,
        };
        settles(self) > settles(other)
    }
}

impl Controller {
    /// Looks at all balancers of a name.
    pub(super) fn look(&self, key: &ObjectKey) -> Seen {
        let service = self.shell.parts.services.get(key);
        if let Some(service) = &service {
            self.recall(service);
        }
        let rows = self.rows.of(key);
        let own: Vec<_> = match &service {
            Some(service) => rows.iter().filter(|row| *row.at.uid == *service.uid).cloned().collect(),
            None => Vec::new(),
        };
        let none = (Owner::Others, None);
        let (owner, maker) = service.as_deref().map_or(none, |service| self.owner(service, &own));
        let answers = |owner: &Arc<dyn Provider>| !standing(owner.as_ref()).is_away();
        let setting = Setting {
            service: service.as_deref(),
            owner: &owner,
            own: &own,
            owner_answers: maker.as_ref().is_some_and(answers),
            delete_orphans: self.shell.parts.settings.services.delete_orphaned_load_balancers,
        };
        let rows = rows.into_iter().map(|row| (Arc::clone(&row), fate(&row, &setting))).collect();
        Seen { owner, maker, own, rows, service }
    }

    /// Looks at the Service itself.
    pub(super) fn subject<'a>(&self, seen: &'a Seen) -> Option<Subject<'a>> {
        let (service, maker) = (seen.service.clone()?, seen.maker.as_ref());
        let standing = maker.map_or(ProviderStatus::Serving, |maker| standing(maker.as_ref()));
        let asked =
            maker.filter(|maker| !standing.is_away() && self.listed.lock().contains_key(maker.name()));
        let backends = asked.map(|maker| self.backends.of(maker.as_ref()));
        let wanted = asked.zip(backends.as_ref()).map(|(maker, backends)| Wanted {
            digest: maker.desired_digest(&service, backends),
            refusal: match &seen.owner {
                Owner::Misnamed { why, .. } => Some(why.clone()),
                _ => source_ranges(&service).err().or_else(|| ip_mode(&service).err()),
            },
        });
        let mut row =
            maker.and_then(|maker| seen.own.iter().find(|row| *row.at.provider == *maker.name()).cloned());
        if let (Some(known), Some(wanted)) = (&mut row, &wanted) {
            let recognise = |row: &mut Row| {
                row.last = Some(Arc::clone(&service));
                row.recognise(&service, &wanted.digest);
                row.clone()
            };
            if let Some(row) = self.rows.update(&known.at, recognise) {
                *known = Arc::new(row);
            }
        }
        let mut status = row.as_ref().map(|row| row.status.of(&service)).unwrap_or_default();
        if status.ingress.is_none() && seen.own.iter().any(|row| row.is_removed()) {
            // The addresses of a balancer that was removed are dead, whatever becomes of the next one.
            status.ingress = Some(Vec::new());
        }
        let record = row.as_deref().and_then(|row| self.record_of(row));
        let others = self.others(seen, &service, maker.map(AsRef::as_ref));
        let published = status.is_published(&service, record.as_ref());
        let (owner, now) = (seen.owner.clone(), Instant::now());
        let view = View { service, owner, standing, row, others, wanted, published, is_full: false, now };
        Some(Subject { seen, view, backends, status, record })
    }

    /// What a restart finds of a row.
    pub(super) fn record_of(&self, row: &Row) -> Option<Record> {
        let provider = self.shell.parts.providers.by_name(&row.at.provider)?;
        let is_durable = provider.info().is_some_and(|info| info.durable_digest);
        // Then its list says everything.
        let is_needless = is_durable && self.shell.parts.providers.all().len() == 1;
        if is_needless { None } else { Record::of_row(row, is_durable) }
    }

    /// A Service that this process sees for the first time has what its record says.
    pub(super) fn recall(&self, service: &Arc<Service>) {
        let Some(record) = Record::of(service) else { return };
        let is_known = self.rows.of(&service.key).iter().any(|row| *row.at.uid == *service.uid);
        if is_known || self.shell.parts.providers.by_name(&record.provider).is_none() {
            return;
        }
        let set = self.sets.recalled(&record.provider);
        let at = RowKey::new(&service.uid, &record.provider);
        self.rows.change(&at, &service.key, |row| {
            row.known = record.known(set.as_deref());
            if service.ingress.is_empty() {
                // Its addresses were lost, or never written: the provider knows them.
                row.is_to_be_settled();
            }
            row.last = Some(Arc::clone(service));
        });
    }

    /// The owner of a Service, and the provider that would make its balancer.
    fn owner(&self, service: &Service, own: &[Arc<Row>]) -> (Owner, Option<Arc<dyn Provider>>) {
        let providers = &self.shell.parts.providers;
        let holder = self.holder(service, own);
        let class = service.spec.load_balancer_class.as_deref();
        if is_load_balancer(service) {
            let owner = providers.for_service(service);
            let is_named = service.annotations.get(PROVIDER_ANNOTATION).is_some();
            let Some(holder) = holder else { return of_owner(owner) };
            // The provider that had the balancer keeps it, unless somebody moves the Service: that it looks after the class
            // no more may be a mistake of its rollout.
            let keeps = || {
                own.iter().filter(|row| *row.at.provider == *holder.name()).any(|row| {
                    was_had(row, service)
                        && !row.made_as().is_some_and(|digest| is_for_another_class(digest, class))
                })
            };
            return match (owner, holder.info()) {
                (ServiceOwner::Misnamed(why), _) => (Owner::Misnamed { kept: true, why }, Some(holder)),
                (owner, _) if is_named => of_owner(owner),
                (_, None) => (Owner::Undecided(not_introduced(holder.name())), None),
                (_, Some(info)) if info.looks_after(class) => of_owner(ServiceOwner::Provider(holder)),
                (ServiceOwner::Provider(other), Some(_)) if other.name() != holder.name() && keeps() => {
                    let (has, now) = (holder.name(), other.name());
                    let why = format!(
                        "provider {has:?} has its load balancer, and does not look after its class; to move it to {now:?}, name \
                         that in the annotation {PROVIDER_ANNOTATION}"
                    );
                    (Owner::Misnamed { kept: true, why }, Some(holder))
                }
                (owner, Some(_)) => of_owner(owner),
            };
        }
        if let Some(holder) = holder {
            return (Owner::Ours(holder.name().to_owned()), None);
        }
        // The apiserver clears the class together with the type. A finalizer of another implementation remains its own.
        if let Some(class) = self.former_classes.of(service)
            && let (owner @ (Owner::Others | Owner::Undecided(_)), _) =
                of_owner(providers.for_class(class.as_deref()))
        {
            return (owner, None);
        }
        // A Service that wants no balancer has no class either: any provider with balancers may have made one, and may
        // remove it.
        let owner = providers.all().iter().find(|provider| serves_balancers(provider.as_ref()));
        let unknown = providers.all().iter().find(|provider| provider.info().is_none());
        let owner = match (owner, unknown) {
            (Some(owner), _) => Owner::Ours(owner.name().to_owned()),
            (None, Some(unknown)) => Owner::Undecided(not_introduced(unknown.name())),
            (None, None) => Owner::Others,
        };
        (owner, None)
    }

    /// The provider that has the balancer. Of several, the one that the record names, then the one whose addresses are
    /// published, which anybody can read and list.
    fn holder(&self, service: &Service, own: &[Arc<Row>]) -> Option<Arc<dyn Provider>> {
        let present: Vec<_> = own.iter().filter(|row| row.is_present()).collect();
        let recorded = Record::of(service).map(|record| record.provider);
        let is_recorded =
            |row: &&&Arc<Row>| recorded.as_deref().is_some_and(|name| *name == *row.at.provider);
        let owner = self.shell.parts.providers.for_service(service);
        let published = || {
            let published: Vec<_> = present.iter().filter(|row| is_published(row, service)).collect();
            if let [only] = published.as_slice() { Some(*only) } else { None }
        };
        let several = || {
            let recorded = present.iter().find(is_recorded).or_else(published);
            recorded.or_else(|| present.iter().find(|row| is_owners(row, &owner))).copied()
        };
        let row = match present.as_slice() {
            [only] => Some(*only),
            _ => several().or_else(|| present.first().copied()),
        };
        self.shell.parts.providers.by_name(&row?.at.provider).cloned()
    }

    /// What other balancers of the name demand first.
    fn others(&self, seen: &Seen, service: &Service, maker: Option<&dyn Provider>) -> Others {
        let own = &seen.own;
        if seen.to_remove().any(|(_, why)| why.comes_first()) {
            return Others::Leaving;
        }
        let is_over = service.is_deleting() || !is_load_balancer(service) || seen.owner == Owner::Others;
        let unknown = self.shell.parts.providers.all().iter().find(|provider| provider.info().is_none());
        let is_gone = |row: &Row| row.is_removed() && is_proven(row, service);
        // What only a list says, and its provider deletes, need not be all there was.
        let is_settled = || {
            seen.owner == Owner::Others
                || !has_finalizer(service)
                || own.iter().any(|row| is_gone(row))
                || unknown.is_none() && self.suspects(service, own).is_empty()
        };
        if is_over && own.iter().any(|row| row.is_removed()) && is_settled() {
            return Others::Removed;
        }
        // Its finalizer shows that a balancer was asked for, but not of whom, unless there is a record of one of ours.
        let is_recorded = Record::of(service)
            .is_some_and(|record| self.shell.parts.providers.by_name(&record.provider).is_some());
        let owner = self.shell.parts.providers.for_service(service);
        let is_had = |row: &Row| row.is_present() && (is_owners(row, &owner) || was_had(row, service));
        let is_lost =
            has_finalizer(service) && !is_recorded && own.iter().all(|row| !(is_gone(row) || is_had(row)));
        if is_over {
            let suspect = unknown.filter(|_| is_lost && seen.owner != Owner::Others);
            return suspect.map_or(Others::None, |one| Others::MayBeAt(one.name().to_owned()));
        }
        let is_lost = is_lost && service.annotations.get(PROVIDER_ANNOTATION).is_none();
        let listed = self.listed.lock();
        let may_have_it = |provider: &&Arc<dyn Provider>| {
            let is_known = matches!(listed.get(provider.name()), Some(Listing::Complete | Listing::Refused));
            // It may have looked after the class before.
            let may_serve = provider.info().is_none_or(|info| info.load_balancers);
            maker.is_none_or(|maker| maker.name() != provider.name()) && may_serve && !is_known
        };
        match self.shell.parts.providers.all().iter().find(may_have_it).filter(|_| is_lost) {
            Some(provider) => Others::MayBeAt(provider.name().to_owned()),
            None => Others::None,
        }
    }

    /// Those who may have a balancer of which nothing is known but the finalizer: its owner, and all whose lists do not say
    /// that they have none; without those that have removed one.
    pub(super) fn suspects(&self, service: &Service, own: &[Arc<Row>]) -> Vec<RowKey> {
        let class = service.spec.load_balancer_class.as_deref();
        let owner = match self.shell.parts.providers.for_service(service) {
            ServiceOwner::Misnamed(_) => self.shell.parts.providers.for_class(class),
            owner => owner,
        };
        let listed = self.listed.lock();
        let may_have_it = |provider: &&Arc<dyn Provider>| {
            let lacks_it =
                is_load_balancer(service) && listed.get(provider.name()) == Some(&Listing::Complete);
            serves_balancers(provider.as_ref()) && (!lacks_it || owner.is(provider.as_ref()))
        };
        let suspects = self.shell.parts.providers.all().iter().filter(may_have_it);
        let suspects = suspects.map(|provider| RowKey::new(&service.uid, provider.name()));
        suspects.filter(|at| !own.iter().any(|row| row.at == *at && row.is_removed())).collect()
    }

    /// What is known at first of a balancer that nothing refers to.
    pub(super) fn known_at_first(&self, provider: &str) -> Known {
        match self.listed.lock().get(provider) {
            Some(Listing::Complete) => Known::Absent,
            Some(Listing::Incomplete | Listing::Refused | Listing::Failed) | None => Known::Unsure,
        }
    }
}

fn of_owner(owner: ServiceOwner) -> (Owner, Option<Arc<dyn Provider>>) {
    match owner {
        ServiceOwner::Provider(owner) => (Owner::Ours(owner.name().to_owned()), Some(owner)),
        ServiceOwner::Undecided => {
            (Owner::Undecided("a provider has not introduced itself".to_owned()), None)
        }
        ServiceOwner::Misnamed(why) => (Owner::Misnamed { kept: false, why }, None),
        ServiceOwner::Nobody => (Owner::Others, None),
    }
}

/// Whether it is the balancer at this owner.
fn is_owners(row: &Row, owner: &ServiceOwner) -> bool {
    matches!(owner, ServiceOwner::Provider(owner) if *owner.name() == *row.at.provider)
}

fn not_introduced(name: &str) -> String {
    format!("provider {name:?} has not introduced itself")
}

pub(super) fn serves_balancers(provider: &dyn Provider) -> bool {
    provider.info().is_some_and(|info| info.load_balancers)
}

/// The calls that a provider may be sent, with a reason that names it.
pub(super) fn standing(provider: &dyn Provider) -> ProviderStatus {
    match provider.info() {
        None => ProviderStatus::Disconnected(not_introduced(provider.name())),
        Some(_) => provider.status(Family::LoadBalancers).borrow().told_of(provider.name()),
    }
}
