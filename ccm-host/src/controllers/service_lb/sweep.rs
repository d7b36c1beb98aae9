//! A slow check of all balancers of a provider: at the start instead of an Ensure for each Service, then periodically
//! to find those that drifted, vanished, or are no longer wanted. And what waits for a provider resumes once it is back or
//! thaws.
//!
//! In: the provider's list and status. Out: lanes that know what is applied, keys in the queue where something differs,
//! and reports of balancers without a Service. An incomplete list proves nothing about what it lacks.

mod learn;
mod orphans;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::{Instant, sleep};

use super::{
    Controller,
    lane::{Lane, Presence},
    metrics::Operation,
    needs::{is_load_balancer, is_of_interest},
    observe::{is_published, serves_balancers},
    status,
};
use crate::{
    cloud::{
        CloudError, ContestedClass, ErrorReason, LoadBalancer, LoadBalancerList, LoadBalancerState,
        Ownership, Provider,
    },
    kube::service::{Ingress, ObjectKey, Service},
    reconcile::{askable, follow_status, resync},
};
use learn::{Lesson, learn};
pub(super) use orphans::Orphans;

/// Pauses between attempts at the first list. After the last attempt, the Services are ensured without it.
const FIRST_LIST: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
];

/// The consequence of a list for one Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Nothing to do.
    AsKnown,
    /// The lane learnt something, or is not as wanted: reconcile the Service.
    Look,
    /// The Service has its balancer at its owner; the listed one was left behind.
    LeftBehind,
}

/// A list, and its balancers that were left behind.
struct Swept {
    list: LoadBalancerList,
    left_behind: Vec<LoadBalancer>,
}

impl Controller {
    /// Sweeps at the start and after each period, for as long as it is polled. Removals never delay a sweep.
    pub(super) async fn sweep_for_ever(&self, provider: &Arc<dyn Provider>) {
        let provider = provider.as_ref();
        let mut removals = FuturesUnordered::new();
        let mut swept = self.first_list(provider).await;
        loop {
            if let Some(swept) = swept {
                let strays = self.look_for_strays(provider, swept).await;
                removals.extend(strays.into_iter().map(|stray| self.remove_stray(provider, stray).boxed()));
            }
            swept = tokio::select! {
                swept = self.next_list(provider) => swept,
                () = worked_off(&mut removals) => None,
            };
        }
    }

    async fn next_list(&self, provider: &dyn Provider) -> Option<Swept> {
        sleep(resync(self.parts.settings.services.load_balancer_resync_period)).await;
        askable(provider).await;
        if !serves_balancers(provider) {
            return None;
        }
        let swept = self.sweep(provider).await;
        swept.inspect_err(|error| unlisted(provider, error)).ok()
    }

    /// Requeues everything afterwards, whatever the outcome.
    async fn first_list(&self, provider: &dyn Provider) -> Option<Swept> {
        let mut swept = None;
        for pause in FIRST_LIST.iter().map(Some).chain([None]) {
            askable(provider).await;
            if !serves_balancers(provider) {
                break;
            }
            self.tell_contested_classes(provider);
            match (self.sweep(provider).await, pause) {
                (Ok(done), _) => {
                    swept = Some(done);
                    break;
                }
                (Err(error), Some(pause)) if !error.is(ErrorReason::MethodNotSupported) => {
                    unlisted(provider, &error);
                    sleep(*pause).await;
                }
                (Err(error), _) => {
                    unlisted(provider, &error);
                    break;
                }
            }
        }
        self.listed.insert(provider.name());
        self.look_at_all();
        swept
    }

    /// Logged by whichever of two providers introduces itself later.
    fn tell_contested_classes(&self, provider: &dyn Provider) {
        for ContestedClass { class, owner, others } in self.parts.providers.contested_classes(provider) {
            tracing::warn!(
                class,
                owner,
                ?others,
                "several providers serve this load balancer class: the first on the command line gets its Services"
            );
        }
    }

    /// Lists once, and acts on the list.
    async fn sweep(&self, provider: &dyn Provider) -> Result<Swept, CloudError> {
        let turns = self.lanes.turns();
        let list = self.list(provider).await?;
        for (location, error) in &list.unreachable {
            tracing::warn!(provider = provider.name(), location, %error, "could not list load balancers");
        }
        let by_uid: HashMap<&str, &LoadBalancer> =
            list.items.iter().map(|balancer| (balancer.service_uid.as_str(), balancer)).collect();
        let mut left_behind = Vec::new();
        for service in self.parts.services.list() {
            if !is_of_interest(&service) {
                continue;
            }
            let lesson = Lesson {
                provider: provider.name(),
                listed: by_uid.get(service.uid.as_str()).copied(),
                complete: list.complete,
            };
            match self.teach(provider, &service, &lesson, &turns) {
                Verdict::AsKnown => {}
                Verdict::Look => self.queue.add(service.key.clone()),
                Verdict::LeftBehind => left_behind.extend(lesson.listed.cloned()),
            }
        }
        Ok(Swept { list, left_behind })
    }

    async fn list(&self, provider: &dyn Provider) -> Result<LoadBalancerList, CloudError> {
        let begun = Instant::now();
        let answer = provider.list_load_balancers().await;
        let result = match &answer {
            Ok(list) if list.complete => "ok".to_owned(),
            Ok(_) => "incomplete".to_owned(),
            Err(error) => error.label(),
        };
        self.metrics.ended(provider.name(), Operation::List, result, begun.elapsed());
        answer
    }

    /// Records in the Service's lane what the list said.
    fn teach(
        &self,
        provider: &dyn Provider,
        service: &Arc<Service>,
        lesson: &Lesson<'_>,
        turns: &HashMap<ObjectKey, u64>,
    ) -> Verdict {
        let owner = self.parts.providers.for_service(service);
        // A Service that no longer wants a balancer may have left one anywhere.
        let is_owner = owner.is(provider) || !is_load_balancer(service);
        let is_here = lesson.listed.is_some_and(is_ours);
        if !is_owner && !is_here {
            return Verdict::AsKnown;
        }
        // A worker that holds the lane, or held it after the list began, knows more than the list.
        let Some(mut taken) = self.lanes.take(&service.key) else { return Verdict::AsKnown };
        // A lane created meanwhile without a call, as all are at the start, is still at turn zero.
        let turn = taken.as_ref().map_or(0, |lane| lane.turn);
        if turn != turns.get(&service.key).copied().unwrap_or_default() {
            return Verdict::AsKnown;
        }
        let lane = taken.get_or_insert_with(|| Lane::new(Arc::clone(service)));
        if !lane.is_of(&service.uid) {
            return Verdict::AsKnown;
        }
        let holder = lane.holder.as_deref().filter(|_| lane.presence == Presence::Present);
        let elsewhere = holder.is_some_and(|holder| holder != provider.name());
        let is_served = lane.settled
            && holder
                .and_then(|name| self.parts.providers.by_name(name))
                .is_some_and(|holder| owner.is(holder.as_ref()));
        // Of two balancers of one Service, the one at its owner stays.
        if elsewhere && !(is_here && owner.is(provider)) {
            let is_another = lesson.listed.is_some_and(|listed| is_another(lane, listed));
            return if is_here && is_served && is_another { Verdict::LeftBehind } else { Verdict::AsKnown };
        }
        let news = learn(lane, lesson);
        // Requeues whatever is not as wanted, even while it waits: nothing is stuck for longer than a period.
        let is_wanted =
            lane.settled && is_published(service, Some(lane)) && !self.is_outdated(provider, service, lane);
        if news || !is_wanted { Verdict::Look } else { Verdict::AsKnown }
    }

    /// Whether the applied digest differs from the wanted one, though nothing reported a change.
    fn is_outdated(&self, provider: &dyn Provider, service: &Service, lane: &Lane) -> bool {
        let wanted = || provider.desired_digest(service, &self.backends.of(provider));
        is_load_balancer(service) && lane.applied.as_ref().is_some_and(|applied| applied.digest != wanted())
    }
}

/// Whether the listed balancer is certainly not the one that serves the Service: two providers of one cloud, as while one
/// replaces the other, list the same balancer.
fn is_another(lane: &Lane, listed: &LoadBalancer) -> bool {
    let (ours, theirs) = (lane.ingress.as_deref().unwrap_or_default(), status::published(listed));
    let is_ours = |way: &Ingress| ours.iter().any(|own| (&own.ip, &own.hostname) == (&way.ip, &way.hostname));
    !ours.is_empty() && !theirs.is_empty() && !theirs.iter().any(is_ours)
}

/// Whether the balancer exists, and was made for a Service of this cluster.
pub(super) fn is_ours(balancer: &LoadBalancer) -> bool {
    use LoadBalancerState as S;
    matches!(balancer.state, S::Pending | S::Active | S::Deleting) && balancer.ownership == Ownership::ByUid
}

fn unlisted(provider: &dyn Provider, error: &CloudError) {
    tracing::warn!(provider = provider.name(), %error, "the load balancers could not be listed");
}

/// Never ends: more removals may be added.
async fn worked_off(work: &mut FuturesUnordered<BoxFuture<'_, ()>>) {
    while work.next().await.is_some() {}
    std::future::pending::<()>().await;
}

impl Controller {
    /// Requeues everything whenever the provider is back or thawed, for as long as it is polled.
    pub(super) async fn follow_status(&self, provider: &Arc<dyn Provider>) {
        follow_status(provider.as_ref(), |before, now| {
            if before.is_away() {
                self.release(provider.name());
            }
            // Even if it is as before: a Service may have met a freeze that ended before this was polled.
            if !now.is_away() {
                self.look_at_all();
            }
        })
        .await;
    }

    /// Clears the backoff of what failed for the first time when the provider went away. What fails repeatedly keeps
    /// its backoff: it may be the reason why the provider goes away.
    fn release(&self, provider: &str) {
        let _taken = self.lanes.for_each_idle(|key, lane| {
            let timed = lane.attempt.as_ref().is_some_and(|attempt| attempt.until.is_some());
            if timed && lane.holder.as_deref() == Some(provider) && self.queue.retries(key) == 1 {
                lane.attempt = None;
            }
        });
    }

    /// Requeues every Service that may concern us; most reconciles will find nothing to do.
    pub(super) fn look_at_all(&self) {
        let services = self.parts.services.list();
        let of_interest = services.iter().filter(|service| is_of_interest(service));
        for key in of_interest.map(|service| service.key.clone()).chain(self.lanes.keys()) {
            self.queue.add(key);
        }
    }
}
