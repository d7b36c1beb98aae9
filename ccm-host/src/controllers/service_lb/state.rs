//! Shows the Services that have or want a balancer.

use ccm_state::{Explanation, Service as View, Standing};

use super::{
    Controller, Key,
    events::NO_NODES,
    row::Row,
    service::{is_load_balancer, is_of_interest},
};
use crate::{
    clock,
    cloud::{Family, ProviderStatus, ServiceOwner},
    controllers::explain::Explain,
    kube::{Ingress, service::Service},
};

impl Explain for Controller {
    /// By namespace and name.
    fn services(&self) -> Vec<View> {
        let services = self.parts.services.list().into_iter().filter(|service| is_of_interest(service));
        let mut views: Vec<_> = services.map(|service| self.view(&service)).collect();
        views.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
        views
    }
}

impl Controller {
    fn view(&self, service: &Service) -> View {
        let key = &service.key;
        let class = service.spec.load_balancer_class.as_deref();
        let owner = self.parts.providers.for_service(service);
        let rows = self.rows.of(key);
        let row = rows.iter().find(|row| *row.at.uid == *service.uid && row.is_present());
        let provider = row.map(|row| row.at.provider.to_string()).or_else(|| match &owner {
            ServiceOwner::Provider(owner) => Some(owner.name().to_owned()),
            ServiceOwner::Undecided | ServiceOwner::Misnamed(_) | ServiceOwner::Nobody => None,
        });
        let said = self.reports.explain(&service.uid);
        let (standing, why) = match owner {
            ServiceOwner::Nobody if row.is_none() && is_load_balancer(service) => {
                let class = class.unwrap_or("(none)");
                (Standing::LeftAlone, format!("no provider of this host has the class {class}"))
            }
            ServiceOwner::Misnamed(why) if is_load_balancer(service) => (Standing::Blocked, why),
            _ => match standing(row.map(AsRef::as_ref), &said, self.away(provider.as_deref())) {
                (Standing::Settled, _) if row.is_some_and(|row| self.lacks_nodes_at(row)) => {
                    (Standing::Blocked, NO_NODES.to_owned())
                }
                standing => standing,
            },
        };
        let address = |entry: &Ingress| {
            if entry.ip.is_empty() { entry.hostname.clone() } else { entry.ip.clone() }
        };
        let queued = Key::Service(key.clone());
        View {
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            class: class.map(str::to_owned),
            provider,
            standing,
            addresses: service.ingress.iter().map(address).collect(),
            why,
            retries: self.queue.retries(&queued),
            next_attempt: said
                .iter()
                .filter_map(|said| said.next_attempt)
                .min()
                .or_else(|| self.queue.due(&queued).map(clock::at)),
        }
    }

    fn lacks_nodes_at(&self, row: &Row) -> bool {
        let provider = self.parts.providers.by_name(&row.at.provider);
        provider.is_some_and(|provider| self.backends.of(provider.as_ref()).nodes.is_empty())
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

fn standing(row: Option<&Row>, said: &[Explanation], away: Option<String>) -> (Standing, String) {
    let is_settled = row.is_some_and(|row| row.applied().is_some() || row.is_elsewhere());
    let worst = said.iter().max_by_key(|said| said.standing);
    match (worst, away) {
        (None, _) if is_settled => (Standing::Settled, String::new()),
        (_, Some(why)) => (Standing::Blocked, why),
        (Some(worst), None) => (worst.standing, worst.why.clone()),
        (None, None) => {
            (Standing::Waiting, "the host is working on it, or has not checked it yet".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        controllers::service_lb::row::{Goal, Known, RowKey},
        kube::fixtures::service,
    };

    #[test]
    fn a_service_waits_for_the_first_thing_in_its_way() {
        let down = || Some("provider \"mock\" cannot be asked: down".to_owned());
        let said = |standing, why: &str| Explanation {
            from: String::new(),
            standing,
            reason: String::new(),
            why: why.to_owned(),
            next: String::new(),
            retries: 0,
            last_attempt: None,
            next_attempt: None,
        };
        let working = said(Standing::Waiting, "the provider is working on the load balancer");
        let warned = said(Standing::Blocked, "quota");
        let mut row = Row::new(RowKey::new("web-uid", "mock"), service("web").key, Known::Unsure);
        row.is_applied(Goal::Wanted, "a-b-c".to_owned(), &Arc::new(service("web")));
        let rows = [
            (Some(&row), vec![], down(), Standing::Settled, ""),
            (Some(&row), vec![warned.clone()], down(), Standing::Blocked, "cannot be asked"),
            (Some(&row), vec![working.clone(), warned], None, Standing::Blocked, "quota"),
            (None, vec![working], None, Standing::Waiting, "working on the load balancer"),
            (None, vec![], None, Standing::Waiting, "not checked"),
        ];
        for (row, said, away, want, word) in rows {
            let (standing, why) = standing(row, &said, away);
            assert!(standing == want && why.contains(word), "{said:?}: {standing:?} {why}");
        }
    }
}
