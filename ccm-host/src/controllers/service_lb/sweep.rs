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
use tokio::time::sleep;

use super::{Controller, observe::serves_balancers, services::is_of_interest};
use crate::{
    cloud::{
        CloudError, ContestedClass, ErrorReason, Family, Listed, LoadBalancer, LoadBalancerState, Ownership,
        Provider,
    },
    reconcile::{askable, follow_status, listed, measured, resync},
};
use learn::{Lesson, Verdict};

/// Pauses between attempts at the first list. After the last attempt, the Services are ensured without it.
const FIRST_LIST: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
];

/// A list, and its balancers that were left behind.
struct Swept {
    list: Listed<LoadBalancer>,
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
        let mut pauses = FIRST_LIST.into_iter();
        let swept = loop {
            askable(provider).await;
            if !serves_balancers(provider) {
                break None;
            }
            self.tell_contested_classes(provider);
            match self.sweep(provider).await {
                Ok(swept) => break Some(swept),
                Err(error) => {
                    unlisted(provider, &error);
                    match pauses.next().filter(|_| !error.is(ErrorReason::MethodNotSupported)) {
                        Some(pause) => sleep(pause).await,
                        None => break None,
                    }
                }
            }
        };
        self.listed.lock().insert(provider.name().to_owned());
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
        let call = provider.list_load_balancers();
        let list = measured(&self.metrics.operations, provider, "list", call, listed).await?;
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

    /// Requeues everything whenever the provider is back or thawed, for as long as it is polled.
    pub(super) async fn follow_status(&self, provider: &Arc<dyn Provider>) {
        follow_status(provider.as_ref(), Family::LoadBalancers, |before, now| {
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
