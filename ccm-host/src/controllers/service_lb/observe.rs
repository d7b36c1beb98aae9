//! What there is to know about one Service at one moment.
//!
//! In: caches, lanes and what the providers said of themselves; nothing is asked over the wire. Out: the facts for
//! [`decide`](mod@super::decide), and the providers that [`super::act`] then talks to.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Shared,
    decide::{Claim, Difference, Facts, Standing, Wanted},
    lane::{Intent, Lane, Presence},
    needs::{has_finalizer, is_load_balancer},
};
use crate::{
    cloud::{BackendSet, Provider, ProviderInfo, ProviderStatus, Providers, differ_in_backends_only},
    kube::{
        patch::service_ingress,
        service::{ObjectKey, Service, source_ranges},
    },
};

/// The facts with what they were read from.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) service: Option<Arc<Service>>,
    /// Who makes the balancer.
    pub(super) maker: Option<Arc<dyn Provider>>,
    /// Who may have it.
    pub(super) holders: Vec<Arc<dyn Provider>>,
    pub(super) backends: Option<Arc<BackendSet>>,
    pub(super) now: Instant,
    claim: Claim,
    maker_standing: Standing,
    holders_standing: Standing,
    wanted: Option<Wanted>,
    published: bool,
}

impl Observed {
    pub(super) fn facts<'a>(&'a self, lane: Option<&'a Lane>) -> Facts<'a> {
        Facts {
            service: self.service.as_deref(),
            lane,
            claim: &self.claim,
            maker: &self.maker_standing,
            holders: &self.holders_standing,
            wanted: self.wanted.as_ref(),
            published: self.published,
            now: self.now,
        }
    }

    /// Digest of the wanted state, where there is one.
    pub(super) fn digest(&self) -> Option<String> {
        self.wanted.as_ref().map(|wanted| wanted.digest.clone())
    }

    /// Whether this host looks after the Service.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.claim, Claim::Ours(_))
    }
}

/// Looks at one Service.
pub(super) fn observe(shared: &Shared, key: &ObjectKey, lane: Option<&Lane>) -> Observed {
    let providers = &shared.context.providers;
    let service = shared.context.services.get(key);
    let (claim, maker) = match service.as_deref() {
        Some(service) => claim(providers, service, lane),
        None => (Claim::Others, None),
    };
    let (holders, holders_standing) = holders(providers, lane);
    let maker_standing = maker.as_ref().map_or(Standing::Ready, |maker| standing(maker.as_ref()));
    let asked = maker
        .as_ref()
        .filter(|maker| !matches!(maker_standing, Standing::Away(_)) && shared.listed.contains(maker.name()));
    let backends = asked.map(|maker| shared.backends.of(maker.as_ref()));
    let wanted = match (&service, asked, &backends) {
        (Some(service), Some(maker), Some(backends)) => Some(wanted(maker.as_ref(), service, backends, lane)),
        _ => None,
    };
    let published = service.as_deref().is_some_and(|service| is_published(service, lane));
    let now = Instant::now();
    Observed {
        service,
        maker,
        holders,
        backends,
        now,
        claim,
        maker_standing,
        holders_standing,
        wanted,
        published,
    }
}

/// Who looks after a Service, and who would make its balancer.
fn claim(
    providers: &Providers,
    service: &Service,
    lane: Option<&Lane>,
) -> (Claim, Option<Arc<dyn Provider>>) {
    let class = service.spec.load_balancer_class.as_deref();
    if !is_load_balancer(service) {
        // A Service that wants no balancer has no class either: whoever made one may take it away.
        let owner = providers.all().iter().find(|provider| serves_balancers(provider.as_ref()));
        return match owner {
            Some(owner) => (Claim::Ours(owner.name().to_owned()), None),
            None => (nobody(providers), None),
        };
    }
    let holder =
        lane.filter(|lane| lane.presence == Presence::Present).and_then(|lane| lane.holder.as_deref());
    let holder = holder
        .and_then(|name| providers.by_name(name))
        .filter(|holder| holder.info().is_some_and(|info| looks_after(&info, class)));
    // Who has the balancer keeps it for as long as it looks after the class.
    match holder.cloned().or_else(|| providers.for_service(class)) {
        Some(maker) => (Claim::Ours(maker.name().to_owned()), Some(maker)),
        None => (nobody(providers), None),
    }
}

fn nobody(providers: &Providers) -> Claim {
    let all_known = providers.all().iter().all(|provider| provider.info().is_some());
    if all_known { Claim::Others } else { Claim::Undecided }
}

/// Whether some provider looks after Services of this class.
pub(super) fn is_class_ours(providers: &Providers, class: Option<&str>) -> bool {
    providers.for_service(class).is_some()
}

fn looks_after(info: &ProviderInfo, class: Option<&str>) -> bool {
    info.load_balancers
        && match class {
            Some(class) => info.load_balancer_classes.iter().any(|known| known == class),
            None => info.default_load_balancer_class,
        }
}

pub(super) fn serves_balancers(provider: &dyn Provider) -> bool {
    provider.info().is_some_and(|info| info.load_balancers)
}

/// Who may have the balancer: the one that is known to, else all that could.
fn holders(providers: &Providers, lane: Option<&Lane>) -> (Vec<Arc<dyn Provider>>, Standing) {
    let known = lane.and_then(|lane| lane.holder.as_deref()).and_then(|name| providers.by_name(name));
    let holders: Vec<_> = match known {
        Some(holder) => vec![Arc::clone(holder)],
        None => providers.all().iter().filter(|one| may_serve_balancers(one.as_ref())).cloned().collect(),
    };
    let worst = holders.iter().map(|holder| standing(holder.as_ref())).max_by_key(Standing::severity);
    (holders, worst.unwrap_or(Standing::Ready))
}

fn may_serve_balancers(provider: &dyn Provider) -> bool {
    provider.info().is_none_or(|info| info.load_balancers)
}

pub(super) fn standing(provider: &dyn Provider) -> Standing {
    let name = provider.name();
    if provider.info().is_none() {
        return Standing::Away(format!("provider {name:?} has not introduced itself"));
    }
    match &*provider.status().borrow() {
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
    let since_applied = match since(lane.and_then(|lane| lane.applied.as_ref())) {
        Difference::Nothing if lane.is_some_and(|lane| lane.in_doubt) => Difference::Backends,
        since_applied => since_applied,
    };
    Wanted {
        since_applied,
        since_tried: since(tried),
        refusal: source_ranges(service).err().map(|error| error.to_string()),
        digest,
    }
}

/// Finalizer and status are as they have to be for what is known to be applied.
pub(super) fn is_published(service: &Service, lane: Option<&Lane>) -> bool {
    let ingress = lane.and_then(|lane| lane.ingress.as_deref());
    has_finalizer(service) && ingress.is_none_or(|ingress| service_ingress(service, ingress).is_none())
}
