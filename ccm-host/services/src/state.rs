//! Shows people the Services that have or want a balancer, and what was last tried and said about it.

use std::collections::HashMap;

use ccm_state::{API_VERSION, Balancer, Explanation, LastCall, Service as View, ServiceState, Standing};

use super::{
    Controller, RunKey,
    events::lacks_nodes,
    fate::Fate,
    row::{Applied, Doubt, Known, Row, RowKey},
    service::{is_load_balancer, is_of_interest},
};
use ccm_base::clock;
use ccm_cloud::{CloudError, Family, InProgress, Provider, ProviderStatus, ServiceOwner};
use ccm_kube::{
    Ingress,
    service::{ObjectKey, Service},
};
use ccm_reconcile::{explain::Explain, measured, result};

impl Explain for Controller {
    /// By namespace and name.
    fn services(&self) -> Vec<View> {
        let services = self.shell.parts.services.list().into_iter().filter(|service| is_of_interest(service));
        let lacking = self.lacking();
        let mut views: Vec<_> = services.map(|service| self.view(&service, &lacking)).collect();
        views.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
        views
    }

    fn service(&self, key: &ObjectKey) -> Option<ServiceState> {
        let service = self.shell.parts.services.get(key)?;
        let seen = self.look(key);
        if seen.rows.is_empty() && !is_of_interest(&service) {
            return None;
        }
        let summary = self.view(&service, &self.lacking());
        let provider = summary.provider.as_ref().and_then(|name| self.shell.parts.providers.by_name(name));
        let provider = provider.map(AsRef::as_ref);
        let mut explanations = self.shell.reports.about(&service.uid);
        explanations.sort_by_key(|said| std::cmp::Reverse(said.standing));
        Some(ServiceState {
            api_version: API_VERSION.to_owned(),
            kind: "ServiceState".to_owned(),
            time: clock::now(),
            summary,
            uid: service.uid.clone(),
            balancers: seen.rows.iter().map(|(row, fate)| balancer(row, *fate)).collect(),
            backends: provider.map_or(0, |provider| self.backends.of(provider).nodes.len()),
            left_out: provider.map(|provider| self.backends.left_out(provider)).unwrap_or_default(),
            explanations,
        })
    }

    fn resync(&self) -> usize {
        let mut balancers = 0;
        self.rows.for_each(|row| balancers += usize::from(row.is_doubted(true)));
        self.look_at_all(None);
        balancers
    }
}

impl Controller {
    /// Makes a call about a balancer: counted, timed, and remembered for people. `left` takes out of an answer what is
    /// still to be done.
    pub(super) async fn called<T>(
        &self,
        at: &RowKey,
        provider: &dyn Provider,
        operation: &'static str,
        call: impl Future<Output = Result<T, CloudError>>,
        left: impl Fn(&T) -> &Option<InProgress>,
    ) -> Result<T, CloudError> {
        let remember = |answer: String| {
            let last = LastCall { call: operation.to_owned(), time: clock::now(), answer };
            self.rows.update(at, |row| row.last_call = Some(last));
        };
        remember("no answer yet".to_owned());
        let answer =
            measured(&self.metrics.operations, provider, operation, call, |done| result(left(done))).await;
        remember(match answer.as_ref().map(&left) {
            Ok(None) => "done".to_owned(),
            Ok(Some(InProgress { message, .. })) if message.is_empty() => "in progress".to_owned(),
            Ok(Some(InProgress { message, .. })) => format!("in progress: {message}"),
            Err(error) => error.to_string(),
        });
        answer
    }

    fn view(&self, service: &Service, lacking: &HashMap<&str, String>) -> View {
        let key = &service.key;
        let class = service.spec.load_balancer_class.as_deref();
        let owner = self.shell.parts.providers.for_service(service);
        let rows = self.rows.of(key);
        let row = rows.iter().find(|row| *row.at.uid == *service.uid && row.is_present());
        let provider = row.map(|row| row.at.provider.to_string()).or_else(|| match &owner {
            ServiceOwner::Provider(owner) => Some(owner.name().to_owned()),
            ServiceOwner::Undecided | ServiceOwner::Misnamed(_) | ServiceOwner::Nobody => None,
        });
        let said = self.shell.reports.about(&service.uid);
        let (standing, why) = match owner {
            ServiceOwner::Nobody if row.is_none() && is_load_balancer(service) => {
                let class = class.unwrap_or("(none)");
                (Standing::LeftAlone, format!("no provider of this host has the class {class}"))
            }
            ServiceOwner::Misnamed(why) if is_load_balancer(service) => (Standing::Blocked, why),
            _ => match standing(row.map(AsRef::as_ref), &said, self.away(provider.as_deref())) {
                (Standing::Settled, why) => match row.and_then(|row| lacking.get(&*row.at.provider)) {
                    Some(why) => (Standing::Blocked, why.clone()),
                    None => (Standing::Settled, why),
                },
                standing => standing,
            },
        };
        let address = |entry: &Ingress| {
            if entry.ip.is_empty() { entry.hostname.clone() } else { entry.ip.clone() }
        };
        let queued = RunKey::Service(key.clone());
        View {
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            class: class.map(str::to_owned),
            provider,
            standing,
            addresses: service.ingress.iter().map(address).collect(),
            why,
            retries: self.shell.queue.retries(&queued),
            next_attempt: said
                .iter()
                .filter_map(|said| said.next_attempt)
                .min()
                .or_else(|| self.shell.queue.due(&queued).map(clock::at)),
        }
    }

    /// The providers whose balancers get no nodes, and why.
    fn lacking(&self) -> HashMap<&str, String> {
        let providers = self.shell.parts.providers.all().iter().map(AsRef::as_ref);
        let lack = providers.filter(|provider| self.backends.of(*provider).nodes.is_empty());
        lack.map(|provider| (provider.name(), lacks_nodes(&self.backends.left_out(provider)))).collect()
    }

    /// Why the provider cannot be asked.
    fn away(&self, provider: Option<&str>) -> Option<String> {
        let provider = self.shell.parts.providers.by_name(provider?)?;
        match provider.status(Family::LoadBalancers).borrow().told_of(provider.name()) {
            ProviderStatus::Disconnected(why) => Some(why),
            ProviderStatus::Frozen(_) | ProviderStatus::Serving => None,
        }
    }
}

fn balancer(row: &Row, fate: Fate) -> Balancer {
    let known = match &row.known {
        Known::Unsure => "not known whether it exists",
        Known::Absent => "absent: a complete list lacks it",
        Known::Removed => "removed",
        Known::Asked { .. } => "it exists, or was asked for; its state is not known",
        Known::Applied(Applied { doubt, .. }) if *doubt == Doubt::default() => "as last applied",
        Known::Applied(_) => "as last applied, or changed by a call without a complete answer",
    };
    let going = matches!(fate, Fate::Remove(_)) && !row.is_removed();
    Balancer {
        provider: row.at.provider.to_string(),
        uid: row.at.uid.to_string(),
        known: format!("{known}{}", if going { "; it is to be removed" } else { "" }),
        last_call: row.last_call.clone(),
    }
}

fn standing(row: Option<&Row>, said: &[Explanation], away: Option<String>) -> (Standing, String) {
    let is_as_applied = |row: &Row| row.applied().is_some_and(|applied| applied.doubt == Doubt::default());
    let is_settled = row.is_some_and(|row| is_as_applied(row) || row.is_elsewhere());
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
    use crate::row::{Goal, Known, RowKey};
    use ccm_kube::fixtures::service;

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
        let mut changing = row.clone();
        changing.asked(&Arc::new(service("web")), "a-b-d", true);
        let rows = [
            (Some(&row), vec![], down(), Standing::Settled, ""),
            (Some(&row), vec![warned.clone()], down(), Standing::Blocked, "cannot be asked"),
            (Some(&row), vec![working.clone(), warned], None, Standing::Blocked, "quota"),
            (None, vec![working], None, Standing::Waiting, "working on the load balancer"),
            (None, vec![], None, Standing::Waiting, "not checked"),
            (Some(&changing), vec![], None, Standing::Waiting, "working on it"),
        ];
        for (row, said, away, want, word) in rows {
            let (standing, why) = standing(row, &said, away);
            assert!(standing == want && why.contains(word), "{said:?}: {standing:?} {why}");
        }
    }
}
