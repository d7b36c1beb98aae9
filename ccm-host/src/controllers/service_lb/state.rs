//! Shows the Services that have or want a balancer.

use std::collections::HashMap;

use ccm_state::{Service as Row, Standing};
use tokio::time::Instant;

use super::{
    Controller,
    lane::Lane,
    services::{is_load_balancer, is_of_interest},
};
use crate::{
    clock,
    cloud::{Family, ProviderStatus, ServiceOwner},
    controllers::explain::Explain,
    kube::{Ingress, service::Service},
};

/// What a lane tells people.
#[derive(Debug, Default)]
struct Told {
    holder: Option<String>,
    settled: bool,
    warned: Option<String>,
    in_progress: bool,
    until: Option<Instant>,
}

impl Told {
    fn of(lane: &Lane) -> Self {
        let attempt = lane.attempt.as_ref();
        Self {
            holder: lane.holder.clone(),
            settled: lane.settled,
            warned: lane.warned.clone(),
            in_progress: attempt.is_some_and(|attempt| attempt.in_progress),
            until: attempt.and_then(|attempt| attempt.until),
        }
    }
}

impl Explain for Controller {
    /// By namespace and name.
    fn services(&self) -> Vec<Row> {
        let mut told = HashMap::new();
        self.lanes.for_each_idle(|key, lane| {
            told.insert(key.clone(), Told::of(lane));
        });
        let services = self.parts.services.list().into_iter().filter(|service| is_of_interest(service));
        let mut rows: Vec<_> =
            services.map(|service| self.row(&service, told.remove(&service.key))).collect();
        rows.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
        rows
    }
}

impl Controller {
    fn row(&self, service: &Service, told: Option<Told>) -> Row {
        let class = service.spec.load_balancer_class.as_deref();
        let owner = self.parts.providers.for_service(service);
        let holder = told.as_ref().and_then(|told| told.holder.clone());
        let provider = holder.or_else(|| match &owner {
            ServiceOwner::Provider(owner) => Some(owner.name().to_owned()),
            ServiceOwner::Undecided | ServiceOwner::Misnamed(_) | ServiceOwner::Nobody => None,
        });
        let (standing, why) = match owner {
            ServiceOwner::Nobody if told.is_none() && is_load_balancer(service) => {
                let class = class.unwrap_or("(none)");
                (Standing::LeftAlone, format!("no provider of this host has the class {class}"))
            }
            ServiceOwner::Misnamed(why) if is_load_balancer(service) => (Standing::Blocked, why),
            _ => standing(told.as_ref(), self.away(provider.as_deref())),
        };
        let key = &service.key;
        let address = |entry: &Ingress| {
            if entry.ip.is_empty() { entry.hostname.clone() } else { entry.ip.clone() }
        };
        Row {
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            class: class.map(str::to_owned),
            provider,
            standing,
            addresses: service.ingress.iter().map(address).collect(),
            why,
            retries: self.queue.retries(key),
            next_attempt: told.and_then(|told| told.until).or_else(|| self.queue.due(key)).map(clock::at),
        }
    }

    /// Why the provider cannot be asked.
    fn away(&self, provider: Option<&str>) -> Option<String> {
        let provider = self.parts.providers.by_name(provider?)?;
        match &*provider.status(Family::LoadBalancers).borrow() {
            ProviderStatus::Disconnected(why) => {
                Some(format!("provider {:?} cannot be asked: {why}", provider.name()))
            }
            ProviderStatus::Frozen(_) | ProviderStatus::Serving => None,
        }
    }
}

fn standing(told: Option<&Told>, away: Option<String>) -> (Standing, String) {
    match (told, away) {
        (Some(Told { settled: true, .. }), _) => (Standing::Settled, String::new()),
        (_, Some(why)) => (Standing::Blocked, why),
        (Some(Told { warned: Some(why), .. }), _) => (Standing::Blocked, why.clone()),
        (Some(Told { in_progress: true, .. }), _) => {
            (Standing::Waiting, "the provider is working on the load balancer".to_owned())
        }
        (Some(_), _) => (Standing::Waiting, "the load balancer does not match the Service yet".to_owned()),
        (None, _) => (Standing::Waiting, "the host is working on it, or has not checked it yet".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_waits_for_the_first_thing_in_its_way() {
        let told = || Told::default();
        let down = || Some("provider \"mock\" cannot be asked: down".to_owned());
        let warned = || Told { warned: Some("SyncLoadBalancerFailed quota".to_owned()), ..told() };
        let rows = [
            (Some(Told { settled: true, ..told() }), down(), Standing::Settled, ""),
            (Some(warned()), down(), Standing::Blocked, "cannot be asked"),
            (Some(warned()), None, Standing::Blocked, "quota"),
            (
                Some(Told { in_progress: true, ..told() }),
                None,
                Standing::Waiting,
                "working on the load balancer",
            ),
            (Some(told()), None, Standing::Waiting, "does not match"),
            (None, None, Standing::Waiting, "not checked"),
        ];
        for (told, away, want, word) in rows {
            let (standing, why) = standing(told.as_ref(), away);
            assert!(standing == want && why.contains(word), "{told:?}: {standing:?} {why}");
        }
    }
}
