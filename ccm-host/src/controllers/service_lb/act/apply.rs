//! Creates a balancer, changes it, or gives it other nodes.

use std::{sync::Arc, time::Duration};

use futures::FutureExt as _;
use tokio::time::Instant;

use super::{Act, Step, attempt, lane_of};
use crate::{
    cloud::{
        Accepted, BackendSet, CloudError, EnsureLoadBalancer, Ensured, ErrorReason, InProgress,
        LoadBalancerState, Provider, UpdateLoadBalancer,
    },
    controllers::service_lb::{
        decide::{Wanted, Wish},
        events::Warning,
        lane::{Applied, Attempt, Difference, Intent, Lane, Presence},
        services::published,
        wall_micros,
    },
    kube::{queue::Outcome, service::Service},
    reconcile::{measured, result},
};

/// Delay before asking again, if the provider left the balancer unfinished without saying when to.
const UNFINISHED: Duration = Duration::from_secs(5);

/// The remedy for [`ErrorReason::AdoptionRefused`].
const ADOPT_FLAG: &str = "--adopt-load-balancers";

/// One call to make: which provider to ask for which state.
struct Order {
    wish: Wish,
    service: Arc<Service>,
    provider: Arc<dyn Provider>,
    backends: Arc<BackendSet>,
    digest: String,
}

impl Act<'_> {
    /// Writes the finalizer, calls the provider, writes the status, emits the Event.
    pub(super) async fn ensure(&self, lane: &mut Option<Lane>, wish: Wish) -> Step {
        let Some((order, lane)) = self.begin(lane, wish) else { return Step::End(Outcome::Done) };
        lane.settled = false;
        let Some(service) = &self.seen.facts.service else { return Step::End(Outcome::Done) };
        if let Err(error) = self.guard(service, lane).await {
            return self.unwritten(lane, service, "finalizer", &error);
        }
        self.announce(lane, &order);
        match self.call_ensure(lane, &order).await {
            Ok(ensured) => self.ensured(lane, order, ensured).await,
            Err(error) => {
                if error.is(ErrorReason::AdoptionRefused) {
                    let remedy =
                        format_args!("{error}; {ADOPT_FLAG} lets the host take over the load balancer");
                    self.controller.events.warn(lane, &order.service, Warning::sync(remedy));
                } else if !self.is_quiet(&error) {
                    self.controller.events.warn(lane, &order.service, Warning::sync(&error));
                }
                self.failed_to_apply(lane, order, &error)
            }
        }
    }

    /// The call to make, and the lane with the current Service.
    fn begin<'a>(&self, lane: &'a mut Option<Lane>, wish: Wish) -> Option<(Order, &'a mut Lane)> {
        let facts = &self.seen.facts;
        let (service, wanted) = (facts.service.as_ref()?, facts.wanted.as_ref()?);
        let (provider, backends) = (self.seen.maker.clone()?, self.seen.backends.clone()?);
        let digest = match wish {
            Wish::Wanted => wanted.digest.clone(),
            Wish::Upkeep => wanted.upkeep.clone()?,
        };
        if let Some(why) = &wanted.refusal {
            self.refuse(lane, why);
        }
        let lane = lane_of(lane, service);
        let service = match (wish, &lane.applied) {
            (Wish::Upkeep, Some(Applied { service: Some(applied), .. })) => applied,
            // After a restart only the digest of what is applied is known. An update replaces only the backends, so any
            // version of the Service will do.
            (Wish::Upkeep, _) => service,
            (Wish::Wanted, _) => service,
        };
        Some((Order { wish, service: Arc::clone(service), provider, backends, digest }, lane))
    }

    /// Emits the Event once per wanted state, however often it is tried.
    fn announce(&self, lane: &mut Lane, order: &Order) {
        if order.wish == Wish::Wanted && lane.announced.as_ref() != Some(&order.digest) {
            lane.announced = Some(order.digest.clone());
            self.controller.events.ensuring(&order.service);
        }
    }

    async fn call_ensure(&self, lane: &mut Lane, order: &Order) -> Result<Ensured, CloudError> {
        let Order { service, provider, backends, digest, .. } = order;
        // Until the answer arrives, the state of the cloud is unknown.
        lane.begin_turn(Difference::Service);
        lane.holder = Some(provider.name().to_owned());
        lane.presence = Presence::Present;
        lane.made_as = Some(digest.clone());
        let wanted = EnsureLoadBalancer {
            service: Arc::clone(service),
            backends: Arc::clone(backends),
            desired_digest: digest.clone(),
            revision: lane.revision(Some(digest), wall_micros()),
            adopt: self.controller.parts.settings.services.adopt_load_balancers,
        };
        let call = provider.ensure_load_balancer(wanted).map(|answer| {
            answer.and_then(|mut ensured| {
                ensured.in_progress = what_is_left(&ensured)?;
                Ok(ensured)
            })
        });
        let operations = &self.controller.metrics.operations;
        measured(operations, &**provider, "ensure", call, |ensured| result(&ensured.in_progress)).await
    }

    async fn ensured(&self, lane: &mut Lane, order: Order, ensured: Ensured) -> Step {
        let Order { wish, service, backends, digest, .. } = order;
        let ingress = published(&ensured.load_balancer);
        let rejected = ensured.load_balancer.rejected.join("; ");
        self.controller.events.of_provider(&*service, &ensured.events);
        if !rejected.is_empty() {
            self.controller.events.warn(lane, &service, Warning::sync(rejected));
        }
        let done = ensured.in_progress.is_none();
        // While the work is in progress, an empty answer means "not known yet", so the published status stays.
        if done || !ingress.is_empty() {
            lane.ingress = Some(ingress);
        }
        // The provider answers only once: keep what cannot be written now for later.
        lane.annotations.extend(ensured.removed_annotations.into_iter().map(|key| (key, None)));
        lane.annotations.extend(ensured.annotations.into_iter().map(|(key, value)| (key, Some(value))));
        lane.conditions.extend(ensured.conditions);
        if done {
            lane.is_applied(digest.clone(), &service);
        }
        let written = self.write_answer(lane).await;
        if let Some(in_progress) = ensured.in_progress {
            if let Err(error) = written {
                let _told = self.unwritten(lane, &service, "status", &error);
            }
            return self.in_progress_of(lane, wish, digest, &in_progress);
        }
        if wish == Wish::Wanted {
            lane.attempt = None;
        }
        if let Err(error) = written {
            return self.unwritten(lane, &service, "status", &error);
        }
        if wish == Wish::Upkeep {
            return self.kept_up(lane, &backends);
        }
        self.controller.events.ensured(&service);
        if backends.nodes.is_empty() {
            self.controller.events.warn(lane, &service, Warning::no_nodes());
        } else {
            lane.warned = None;
        }
        settle(lane);
        Step::End(Outcome::Done)
    }

    /// Gives the balancer other nodes, and changes nothing else; batched with the updates of other Services.
    pub(super) async fn update(&self, lane: &mut Option<Lane>, wish: Wish) -> Step {
        let Some((order, lane)) = self.begin(lane, wish) else { return Step::End(Outcome::Done) };
        match self.call_update(lane, &order).await {
            Ok(updated) => self.updated(lane, order, updated),
            Err(error) if is_for_ensure(&error) => {
                match (wish, &mut lane.applied) {
                    (Wish::Upkeep, Some(applied)) => applied.needs_ensure = true,
                    // The provider cannot confirm that the balancer is as before, so nothing is known to be applied.
                    _ => {
                        lane.doubt = Difference::Service;
                        lane.attempt = None;
                    }
                }
                Step::Again
            }
            Err(error) => {
                if !self.is_quiet(&error) {
                    let warning = Warning::update(&order.backends, &error);
                    self.controller.events.warn(lane, &order.service, warning);
                }
                self.failed_to_apply(lane, order, &error)
            }
        }
    }

    async fn call_update(&self, lane: &mut Lane, order: &Order) -> Result<Accepted, CloudError> {
        let Order { service, provider, backends, digest, .. } = order;
        lane.begin_turn(Difference::Backends);
        let wanted = UpdateLoadBalancer {
            service: Arc::clone(service),
            backends: Arc::clone(backends),
            desired_digest: digest.clone(),
            revision: lane.revision(Some(digest), wall_micros()),
        };
        let metrics = &self.controller.metrics;
        metrics.update_begins();
        let begun = Instant::now();
        let call = provider.update_load_balancer(wanted);
        let answer = measured(&metrics.operations, &**provider, "update", call, |updated| {
            result(&updated.in_progress)
        })
        .await;
        metrics.update_ended(answer.is_ok(), begun.elapsed());
        answer
    }

    fn updated(&self, lane: &mut Lane, order: Order, updated: Accepted) -> Step {
        let Order { wish, service, backends, digest, .. } = order;
        self.controller.events.of_provider(&*service, &updated.events);
        if let Some(in_progress) = updated.in_progress {
            return self.in_progress_of(lane, wish, digest, &in_progress);
        }
        lane.has_nodes(digest);
        if wish == Wish::Upkeep {
            return self.kept_up(lane, &backends);
        }
        lane.attempt = None;
        if backends.nodes.is_empty() {
            self.controller.events.warn(lane, &service, Warning::no_nodes());
        } else {
            lane.warned = None;
            self.controller.events.updated(&service);
        }
        settle(lane);
        // Nothing was written, so the status may still have to be.
        Step::Again
    }

    /// The nodes are right; what the Service says still has to wait.
    fn kept_up(&self, lane: &mut Lane, backends: &BackendSet) -> Step {
        lane.node_sync = None;
        match &self.seen.facts.service {
            Some(service) if backends.nodes.is_empty() => {
                self.controller.events.warn(lane, service, Warning::no_nodes());
            }
            Some(service) => self.controller.events.updated(service),
            None => {}
        }
        Step::Again
    }

    fn failed_to_apply(&self, lane: &mut Lane, order: Order, error: &CloudError) -> Step {
        let intent = Intent::Apply(order.digest);
        match order.wish {
            Wish::Wanted => {
                let outcome = self.failed(lane, intent, error);
                // What is applied may need other nodes while this change waits.
                let stale =
                    |wanted: &Wanted| wanted.since_applied == Difference::Service && wanted.upkeep.is_some();
                if self.seen.facts.wanted.as_ref().is_some_and(stale) {
                    self.controller.queue.add(self.key.clone());
                }
                Step::End(outcome)
            }
            Wish::Upkeep => {
                let (wait, outcome) = self.pace(lane, &intent, error);
                lane.upkeep = Some(attempt(intent, wait));
                self.wake_for_attempt(lane);
                Step::End(outcome)
            }
        }
    }

    fn in_progress_of(&self, lane: &mut Lane, wish: Wish, digest: String, in_progress: &InProgress) -> Step {
        let intent = Intent::Apply(digest);
        match wish {
            Wish::Wanted => self.in_progress(lane, intent, in_progress),
            Wish::Upkeep => {
                lane.upkeep = Some(attempt(intent, Some(in_progress.retry_after)));
                self.wake_for_attempt(lane);
                Step::End(Outcome::RetryAfter(in_progress.retry_after))
            }
        }
    }

    /// The queue keeps one delay per Service: make sure that the earlier one counts.
    fn wake_for_attempt(&self, lane: &Lane) {
        if let Some(until) = lane.attempt.as_ref().and_then(|attempt| attempt.until) {
            self.controller
                .queue
                .add_after(self.key.clone(), until.saturating_duration_since(Instant::now()));
        }
    }

    /// Nothing is wrong; repeats the request when the provider said to.
    pub(super) fn in_progress(&self, lane: &mut Lane, intent: Intent, in_progress: &InProgress) -> Step {
        let InProgress { retry_after, reason, message } = in_progress;
        tracing::debug!(service = %self.key, ?retry_after, reason, message, "the provider is working on it");
        lane.settled = false;
        lane.attempt = Some(Attempt { in_progress: true, ..attempt(intent, Some(*retry_after)) });
        Step::End(Outcome::RetryAfter(*retry_after))
    }
}

fn settle(lane: &mut Lane) {
    lane.settled = true;
    lane.announced = None;
    lane.node_sync = None;
}

/// Whether only an Ensure helps: the balancer is not as the provider last knew it, or the provider cannot update at
/// all.
fn is_for_ensure(error: &CloudError) -> bool {
    error.is(ErrorReason::NeedsEnsure) || error.is(ErrorReason::MethodNotSupported)
}

/// Rejects an answer that reports a balancer as done which does not serve.
pub(in crate::controllers::service_lb) fn what_is_left(
    ensured: &Ensured,
) -> Result<Option<InProgress>, CloudError> {
    match ensured.load_balancer.state {
        _ if ensured.in_progress.is_some() => Ok(ensured.in_progress.clone()),
        LoadBalancerState::Active => Ok(None),
        LoadBalancerState::Pending => Ok(Some(InProgress {
            retry_after: UNFINISHED,
            reason: String::new(),
            message: "the balancer is pending".to_owned(),
        })),
        state @ (LoadBalancerState::Unspecified
        | LoadBalancerState::Deleting
        | LoadBalancerState::Absent
        | LoadBalancerState::NotOwned) => Err(CloudError {
            method: "EnsureLoadBalancer",
            reason: None,
            code: tonic::Code::Internal,
            message: format!("the provider reports success, but the load balancer is {state:?}"),
            retry_after: None,
            is_unanswered: false,
        }),
    }
}
