//! Gathers the facts about one Service at one moment.
//!
//! In: caches, lanes, and what the providers reported about themselves; no RPCs. Out: the facts for
//! [`decide`](mod@super::decide), and the providers that [`super::act`] then calls.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Controller, Turn,
    decide::{Action, Claim, Facts, Standing, Wanted},
    lane::{Difference, Intent, Lane, Presence},
    services::{has_finalizer, is_load_balancer},
};
use crate::{
    cloud::{
        BackendSet, Family, PROVIDER_ANNOTATION, Provider, ProviderStatus, Providers, ServiceOwner,
        covers_backends, differ_in_backends_only, with_backends_of,
    },
    kube::{
        patch::service_ingress,
        service::{ObjectKey, Service, source_ranges},
    },
};

/// The facts, and whom and what they are about.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) facts: Facts,
    /// The provider to create or change the balancer.
    pub(super) maker: Option<Arc<dyn Provider>>,
    /// The providers that may have the balancer.
    pub(super) holders: Vec<Arc<dyn Provider>>,
    pub(super) backends: Option<Arc<BackendSet>>,
}

impl Observed {
    /// The permit that the action needs: of which provider, and for what.
    pub(super) fn turn_of(&self, action: &Action) -> Option<(String, Turn)> {
        let (provider, turn) = match action {
            Action::Ensure(_) => (self.maker.as_ref()?, Turn::Change),
            Action::Remove(_) => (self.holders.first()?, Turn::Remove),
            _ => return None,
        };
        Some((provider.name().to_owned(), turn))
    }

    /// The observed nodes, if the balancer has them. The next iteration of the same run reuses them: in a storm it
    /// would otherwise find newer ones every time, and those must wait for the fan-out.
    pub(super) fn given(&self, lane: Option<&Lane>) -> Option<Given> {
        let (applied, maker, backends) =
            (lane?.applied.as_ref()?, self.maker.as_ref()?, self.backends.as_ref()?);
        let has_them = covers_backends(&applied.digest, &backends.digest);
        has_them.then(|| Given { provider: maker.name().to_owned(), backends: Arc::clone(backends) })
    }
}

/// The nodes that this run gave a balancer.
#[derive(Debug)]
pub(super) struct Given {
    provider: String,
    backends: Arc<BackendSet>,
}

pub(super) fn observe(
    controller: &Controller,
    key: &ObjectKey,
    lane: Option<&Lane>,
    given: Option<&Given>,
) -> Observed {
    let providers = &controller.parts.providers;
    let service = controller.parts.services.get(key);
    let (claim, maker) = match service.as_deref() {
        Some(service) => claim(controller, service, lane),
        None => (Claim::Others, None),
    };
    let (holders, worst) = holders(providers, lane);
    let standing = maker.as_ref().map_or(Standing::Ready, |maker| standing(maker.as_ref()));
    let asked = maker.as_ref().filter(|maker| {
        !matches!(standing, Standing::Away(_)) && controller.listed.lock().contains(maker.name())
    });
    let backends = asked.map(|maker| match given {
        Some(given) if given.provider == maker.name() => Arc::clone(&given.backends),
        _ => controller.backends.of(maker.as_ref()),
    });
    let mut wanted = match (&service, asked, &backends) {
        (Some(service), Some(maker), Some(backends)) => Some(wanted(maker.as_ref(), service, backends, lane)),
        _ => None,
    };
    if let (Claim::Misnamed { why, .. }, Some(wanted)) = (&claim, &mut wanted) {
        wanted.refusal = Some(why.clone());
    }
    let published = service.as_deref().is_some_and(|service| is_published(service, lane));
    let now = Instant::now();
    let facts = Facts { service, claim, maker: standing, holders: worst, wanted, published, now };
    Observed { facts, maker, holders, backends }
}

/// Determines who owns a Service, and which provider would make its balancer.
fn claim(
    controller: &Controller,
    service: &Service,
    lane: Option<&Lane>,
) -> (Claim, Option<Arc<dyn Provider>>) {
    let providers = &controller.parts.providers;
    let holder =
        lane.filter(|lane| lane.presence == Presence::Present).and_then(|lane| lane.holder.as_deref());
    let class = service.spec.load_balancer_class.as_deref();
    if is_load_balancer(service) {
        let owner = providers.for_service(service);
        let is_named = service.annotations.get(PROVIDER_ANNOTATION).is_some();
        // The provider that has the balancer keeps it for as long as it owns the class, and nobody moves the Service.
        let keeps = |holder: &&Arc<dyn Provider>| match &owner {
            ServiceOwner::Misnamed(_) => true,
            _ => !is_named && holder.info().is_some_and(|info| info.looks_after(class)),
        };
        let holder = holder.and_then(|name| providers.by_name(name)).filter(keeps).cloned();
        return match (owner, holder) {
            (ServiceOwner::Misnamed(why), holder) => {
                (Claim::Misnamed { kept: holder.is_some(), why }, holder)
            }
            (_, Some(holder)) => claim_of(ServiceOwner::Provider(holder)),
            (owner, None) => claim_of(owner),
        };
    }
    // The apiserver clears the class together with the type. A finalizer of another implementation remains its own.
    if holder.is_none()
        && let Some(class) = controller.former_classes.of(service)
        && let (claim @ (Claim::Others | Claim::Undecided), _) =
            claim_of(providers.for_class(class.as_deref()))
    {
        return (claim, None);
    }
    // A Service that wants no balancer has no class either: any provider with balancers may have made one, and may
    // remove it.
    let owner = providers.all().iter().find(|provider| serves_balancers(provider.as_ref()));
    let all_known = || providers.all().iter().all(|provider| provider.info().is_some());
    let claim = match owner {
        Some(owner) => Claim::Ours(owner.name().to_owned()),
        None if all_known() => Claim::Others,
        None => Claim::Undecided,
    };
    (claim, None)
}

fn claim_of(owner: ServiceOwner) -> (Claim, Option<Arc<dyn Provider>>) {
    match owner {
        ServiceOwner::Provider(owner) => (Claim::Ours(owner.name().to_owned()), Some(owner)),
        ServiceOwner::Undecided => (Claim::Undecided, None),
        ServiceOwner::Misnamed(why) => (Claim::Misnamed { kept: false, why }, None),
        ServiceOwner::Nobody => (Claim::Others, None),
    }
}

pub(super) fn serves_balancers(provider: &dyn Provider) -> bool {
    provider.info().is_some_and(|info| info.load_balancers)
}

/// The provider known to have the balancer, else every provider that might.
fn holders(providers: &Providers, lane: Option<&Lane>) -> (Vec<Arc<dyn Provider>>, Standing) {
    let known = lane.and_then(|lane| lane.holder.as_deref()).and_then(|name| providers.by_name(name));
    let holders: Vec<_> = match known {
        Some(holder) => vec![Arc::clone(holder)],
        None => {
            let may_serve = |one: &&Arc<dyn Provider>| one.info().is_none_or(|info| info.load_balancers);
            providers.all().iter().filter(may_serve).cloned().collect()
        }
    };
    let worst = holders.iter().map(|holder| standing(holder.as_ref())).max_by_key(Standing::severity);
    (holders, worst.unwrap_or(Standing::Ready))
}

pub(super) fn standing(provider: &dyn Provider) -> Standing {
    let name = provider.name();
    if provider.info().is_none() {
        return Standing::Away(format!("provider {name:?} has not introduced itself"));
    }
    match &*provider.status(Family::LoadBalancers).borrow() {
        ProviderStatus::Disconnected(why) => Standing::Away(format!("provider {name:?} is away: {why}")),
        ProviderStatus::Frozen(why) => Standing::Frozen(format!("provider {name:?} is frozen: {why}")),
        ProviderStatus::Serving => Standing::Ready,
    }
}

impl Standing {
    fn severity(&self) -> u8 {
        match self {
            Self::Ready => 0,
            Self::Frozen(_) => 1,
            Self::Away(_) => 2,
        }
    }
}

fn wanted(
    provider: &dyn Provider,
    service: &Service,
    backends: &Arc<BackendSet>,
    lane: Option<&Lane>,
) -> Wanted {
    let digest = provider.desired_digest(service, backends);
    let since = |then: Option<&String>| match then {
        None => Difference::Service,
        Some(then) if *then == digest => Difference::Nothing,
        Some(then) if differ_in_backends_only(then, &digest) => Difference::Backends,
        Some(_) => Difference::Service,
    };
    let tried = lane.and_then(|lane| match lane.attempt.as_ref()?.intent {
        Intent::Apply(ref digest) => Some(digest),
        Intent::Remove => None,
    });
    let applied = lane.and_then(|lane| lane.applied.as_ref()).map(|applied| &applied.digest);
    let doubt = lane.map_or(Difference::Nothing, |lane| lane.doubt);
    Wanted {
        since_applied: since(applied).max(doubt),
        upkeep: applied.and_then(|applied| with_backends_of(applied, &digest)),
        since_tried: since(tried),
        refusal: source_ranges(service).err().map(|error| error.to_string()),
        digest,
    }
}

/// Whether finalizer, status, annotations and conditions match what is known to be applied.
pub(super) fn is_published(service: &Service, lane: Option<&Lane>) -> bool {
    let ingress = lane.and_then(|lane| lane.ingress.as_deref());
    has_finalizer(service)
        && ingress.is_none_or(|ingress| service_ingress(service, ingress).is_none())
        && lane.is_none_or(|lane| lane.annotations.is_empty() && lane.conditions.is_empty())
}
