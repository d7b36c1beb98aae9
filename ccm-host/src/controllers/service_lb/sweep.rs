//! One slow look at all balancers of a provider: at the start instead of an Ensure for each Service, and from then on to
//! see what drifted, what vanished, and what nobody wants any more.
//!
//! In: the provider's list. Out: lanes that know what is applied, keys in the queue where something differs, and what is
//! said of balancers without a Service. An incomplete list proves nothing of what is not in it.

mod learn;
mod orphans;

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    Shared,
    lane::{Lane, Presence},
    metrics::Operation,
    needs::{is_load_balancer, is_of_interest},
    observe::{is_published, serves_balancers},
    recovery::askable,
};
use crate::{
    cloud::{
        CloudError, ErrorReason, LoadBalancer, LoadBalancerList, Ownership, Provider, is_for_another_class,
    },
    kube::service::{ObjectKey, Service},
};
use learn::{Lesson, learn};
pub(super) use orphans::Orphans;

/// Pauses between attempts at the first list. After the last one the Services are ensured without it.
const FIRST_LIST: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
];

/// Up to this share of the period is added, so that several providers or hosts do not ask in step.
const JITTER: f64 = 0.1;

impl Shared {
    /// Sweeps at the start and after each period, for as long as it is polled.
    pub(super) async fn sweep_for_ever(&self, provider: &Arc<dyn Provider>) {
        self.first_list(provider.as_ref()).await;
        loop {
            let period = self.context.settings.resync_period;
            sleep(period.mul_f64(1.0 + JITTER * fastrand::f64())).await;
            askable(provider.as_ref()).await;
            if serves_balancers(provider.as_ref())
                && let Err(error) = self.sweep(provider.as_ref()).await
            {
                tracing::warn!(provider = provider.name(), %error, "the load balancers could not be listed");
            }
        }
    }

    /// Whatever comes of it, the Services of this provider are looked at afterwards.
    async fn first_list(&self, provider: &dyn Provider) {
        for pause in FIRST_LIST.iter().map(Some).chain([None]) {
            askable(provider).await;
            if !serves_balancers(provider) {
                break;
            }
            let Err(error) = self.sweep(provider).await else { break };
            tracing::warn!(provider = provider.name(), %error, "the load balancers could not be listed");
            match pause {
                Some(pause) if !error.is(ErrorReason::MethodNotSupported) => sleep(*pause).await,
                _ => break,
            }
        }
        self.listed.insert(provider.name());
        self.look_at_all();
    }

    /// One list and what follows from it.
    async fn sweep(&self, provider: &dyn Provider) -> Result<(), CloudError> {
        let turns = self.lanes.turns();
        let list = self.list(provider).await?;
        for (location, error) in &list.unreachable {
            tracing::warn!(provider = provider.name(), location, %error, "could not be asked for load balancers");
        }
        let by_uid: HashMap<&str, &LoadBalancer> =
            list.load_balancers.iter().map(|balancer| (balancer.service_uid.as_str(), balancer)).collect();
        for service in self.context.services.list() {
            if !is_of_interest(&service) {
                continue;
            }
            let listed = by_uid.get(service.uid.as_str()).copied();
            let left_behind = listed.is_some_and(|listed| is_left_behind(listed, &service));
            if !left_behind && !self.is_for(provider, &service) {
                continue;
            }
            if self.teach(provider, &service, listed, list.complete, &turns) || left_behind {
                self.queue.add(service.key.clone());
            }
        }
        self.look_for_orphans(provider, &list).await;
        Ok(())
    }

    async fn list(&self, provider: &dyn Provider) -> Result<LoadBalancerList, CloudError> {
        let begun = Instant::now();
        let answer = provider.list_load_balancers().await;
        let result = match &answer {
            Ok(list) if list.complete => "ok".to_owned(),
            Ok(_) => "incomplete".to_owned(),
            Err(error) => error.label(),
        };
        self.context.metrics.ended(provider.name(), Operation::List, result, begun.elapsed());
        answer
    }

    /// Whether the Service's balancer would be at this provider.
    fn is_for(&self, provider: &dyn Provider, service: &Service) -> bool {
        // One that wants none any more may have left it anywhere.
        let owner = || self.context.providers.for_service(service.spec.load_balancer_class.as_deref());
        !is_load_balancer(service) || owner().is_some_and(|owner| owner.name() == provider.name())
    }

    /// Notes in the Service's lane what the list said. Whether the Service deserves a look.
    fn teach(
        &self,
        provider: &dyn Provider,
        service: &Arc<Service>,
        listed: Option<&LoadBalancer>,
        complete: bool,
        turns: &HashMap<ObjectKey, u64>,
    ) -> bool {
        // Who is at it knows more than the list, and so does who was at it since the list began.
        let Some(mut taken) = self.lanes.take(&service.key) else { return false };
        // A lane that came up meanwhile without a call, as all do at the start, counts no turn yet.
        let turn = taken.as_ref().map_or(0, |lane| lane.turn);
        if turn != turns.get(&service.key).copied().unwrap_or_default() {
            return false;
        }
        let lane = taken.get_or_insert_with(|| Lane::new(Arc::clone(service)));
        if !lane.is_of(&service.uid) {
            return false;
        }
        let elsewhere = lane.presence == Presence::Present
            && lane.holder.as_deref().is_some_and(|holder| holder != provider.name());
        if elsewhere {
            return false;
        }
        let news = learn(lane, &Lesson { provider: provider.name(), listed, complete });
        // What is not as wanted gets a look, whatever it waits for: nothing is stuck for longer than a period.
        news || !lane.settled || !is_published(service, Some(lane))
    }
}

/// The class of the Service changed while nobody looked, so whoever looks after it now knows nothing of this balancer.
fn is_left_behind(listed: &LoadBalancer, service: &Service) -> bool {
    let class = service.spec.load_balancer_class.as_deref();
    is_load_balancer(service)
        && listed.ownership == Ownership::ByUid
        && listed.applied_digest.as_ref().is_some_and(|digest| is_for_another_class(digest, class))
}
