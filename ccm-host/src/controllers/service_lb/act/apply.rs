//! Makes a balancer, changes it, or gives it other nodes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Act, Step, failure::is_quiet, lane_of};
use crate::{
    cloud::{
        BackendSet, CloudError, EnsureLoadBalancer, Ensured, ErrorReason, InProgress, LoadBalancerState,
        Provider, UpdateLoadBalancer, Updated,
    },
    controllers::service_lb::{
        events::Warning,
        lane::{Intent, Lane, Presence, Taken},
        metrics::Operation,
        status::published,
        wall_micros,
    },
    kube::{patch::WriteError, queue::Outcome, service::Service},
};

/// When a provider is asked again that left its balancer unfinished without saying when.
const UNFINISHED: Duration = Duration::from_secs(5);

/// What a person can do about [`ErrorReason::AdoptionRefused`].
const ADOPT_FLAG: &str = "--adopt-load-balancers";

/// Whom to ask for what.
struct Order {
    service: Arc<Service>,
    provider: Arc<dyn Provider>,
    backends: Arc<BackendSet>,
    digest: String,
}

impl Act<'_> {
    fn order(&self) -> Option<Order> {
        Some(Order {
            service: self.seen.service.clone()?,
            provider: self.seen.maker.clone()?,
            backends: self.seen.backends.clone()?,
            digest: self.seen.digest()?,
        })
    }

    /// Finalizer, call, status, Event.
    pub(super) async fn ensure(&self, lane: &mut Taken) -> Step {
        let Some(order) = self.order() else { return Step::End(Outcome::Done) };
        let lane = lane_of(lane, &order.service);
        lane.settled = false;
        if let Err(error) = self.set_finalizer(&order.service, true).await {
            return self.unwritten(lane, &order.service, "finalizer", &error);
        }
        self.announce(lane, &order);
        match self.call_ensure(lane, &order).await {
            Ok(ensured) => self.ensured(lane, order, ensured).await,
            Err(error) => {
                if error.is(ErrorReason::AdoptionRefused) {
                    let remedy = format_args!("{error}; {ADOPT_FLAG} lets the host take over the balancer");
                    self.shared.events.warn(lane, &order.service, Warning::sync(remedy));
                } else if !is_quiet(&error) {
                    self.shared.events.warn(lane, &order.service, Warning::sync(&error));
                }
                Step::End(self.failed(lane, Intent::Apply(order.digest), &error))
            }
        }
    }

    /// Told once for each wanted state, however often it is tried.
    fn announce(&self, lane: &mut Lane, order: &Order) {
        if lane.announced.as_ref() != Some(&order.digest) {
            lane.announced = Some(order.digest.clone());
            self.shared.events.ensuring(&order.service);
        }
    }

    async fn call_ensure(&self, lane: &mut Lane, order: &Order) -> Result<Ensured, CloudError> {
        let Order { service, provider, backends, digest } = order;
        lane.begin_turn();
        lane.holder = Some(provider.name().to_owned());
        lane.presence = Presence::Present;
        lane.made_as = Some(digest.clone());
        // Until the answer nobody knows what the cloud has.
        lane.applied = None;
        let wanted = EnsureLoadBalancer {
            service: Arc::clone(service),
            backends: Arc::clone(backends),
            desired_digest: digest.clone(),
            revision: lane.revision(Some(digest), wall_micros()),
            adopt: self.shared.context.settings.adopt,
        };
        let begun = Instant::now();
        let answer = provider.ensure_load_balancer(wanted).await.and_then(|mut ensured| {
            ensured.in_progress = what_is_left(&ensured)?;
            Ok(ensured)
        });
        let result = result(&answer, |ensured| &ensured.in_progress);
        self.shared.context.metrics.ended(provider.name(), Operation::Ensure, result, begun.elapsed());
        answer
    }

    async fn ensured(&self, lane: &mut Lane, order: Order, ensured: Ensured) -> Step {
        let Order { service, backends, digest, .. } = order;
        let ingress = published(&ensured.load_balancer);
        let rejected = ensured.load_balancer.rejected.join("; ");
        self.shared.events.of_provider(&*service, ensured.events);
        if !rejected.is_empty() {
            self.shared.events.warn(lane, &service, Warning::sync(rejected));
        }
        let done = ensured.in_progress.is_none();
        // While the work goes on, an empty answer says "not known yet", and what was published stands.
        if done || !ingress.is_empty() {
            lane.ingress = Some(ingress.clone());
        }
        if done {
            lane.applied = Some(digest.clone());
            lane.attempt = None;
            lane.in_doubt = false;
        }
        let written =
            self.write_answer(&service, lane, ensured.annotations, ensured.removed_annotations).await;
        if let Some(in_progress) = ensured.in_progress {
            if let Err(error) = written {
                let _told = self.unwritten(lane, &service, "status", &error);
            }
            return self.in_progress(lane, Intent::Apply(digest), &in_progress);
        }
        if let Err(error) = written {
            return self.unwritten(lane, &service, "status", &error);
        }
        self.shared.events.ensured(&service);
        if backends.nodes.is_empty() {
            self.shared.events.warn(lane, &service, Warning::no_nodes());
        } else {
            lane.warned = None;
        }
        settle(lane);
        Step::End(Outcome::Done)
    }

    async fn write_answer(
        &self,
        service: &Service,
        lane: &Lane,
        annotations: BTreeMap<String, String>,
        removed: Vec<String>,
    ) -> Result<(), WriteError> {
        if let Some(ingress) = &lane.ingress {
            self.set_status(service, ingress).await?;
        }
        self.set_annotations(service, annotations, removed).await
    }

    /// Other nodes, and nothing else: travels with the updates of other Services.
    pub(super) async fn update(&self, lane: &mut Taken) -> Step {
        let Some(order) = self.order() else { return Step::End(Outcome::Done) };
        let lane = lane_of(lane, &order.service);
        match self.call_update(lane, &order).await {
            Ok(updated) => self.updated(lane, order, updated),
            // The provider cannot say that the balancer is as before, so nothing is known to be applied.
            Err(error) if is_for_ensure(&error) => {
                lane.applied = None;
                lane.attempt = None;
                Step::Again
            }
            Err(error) => {
                if !is_quiet(&error) {
                    let warning = Warning::update(&order.backends, &error);
                    self.shared.events.warn(lane, &order.service, warning);
                }
                Step::End(self.failed(lane, Intent::Apply(order.digest), &error))
            }
        }
    }

    async fn call_update(&self, lane: &mut Lane, order: &Order) -> Result<Updated, CloudError> {
        let Order { service, provider, backends, digest } = order;
        lane.begin_turn();
        let wanted = UpdateLoadBalancer {
            service: Arc::clone(service),
            backends: Arc::clone(backends),
            desired_digest: digest.clone(),
            revision: lane.revision(Some(digest), wall_micros()),
        };
        let metrics = &self.shared.context.metrics;
        metrics.update_begins();
        let begun = Instant::now();
        let answer = provider.update_load_balancer(wanted).await;
        metrics.update_ended(answer.is_ok(), begun.elapsed());
        let result = result(&answer, |updated| &updated.in_progress);
        metrics.ended(provider.name(), Operation::Update, result, begun.elapsed());
        answer
    }

    fn updated(&self, lane: &mut Lane, order: Order, updated: Updated) -> Step {
        let Order { service, backends, digest, .. } = order;
        self.shared.events.of_provider(&*service, updated.events);
        if let Some(in_progress) = updated.in_progress {
            return self.in_progress(lane, Intent::Apply(digest), &in_progress);
        }
        lane.applied = Some(digest);
        lane.attempt = None;
        lane.in_doubt = false;
        if backends.nodes.is_empty() {
            self.shared.events.warn(lane, &service, Warning::no_nodes());
        } else {
            lane.warned = None;
            self.shared.events.updated(&service);
        }
        settle(lane);
        // Nothing was written, so somebody may have to look whether the status stands.
        Step::Again
    }

    /// Nothing is wrong; the same is asked again when the provider said.
    pub(super) fn in_progress(&self, lane: &mut Lane, intent: Intent, in_progress: &InProgress) -> Step {
        let InProgress { retry_after, reason, message } = in_progress;
        tracing::debug!(service = %self.key, ?retry_after, reason, message, "the provider is at it");
        lane.settled = false;
        self.hold_back(lane, intent, Some(*retry_after));
        Step::End(Outcome::RetryAfter(*retry_after))
    }
}

fn settle(lane: &mut Lane) {
    lane.settled = true;
    lane.announced = None;
    lane.node_sync = None;
}

/// Whether only Ensure helps: the balancer is not as the provider last knew it, or it cannot update at all.
fn is_for_ensure(error: &CloudError) -> bool {
    error.is(ErrorReason::NeedsEnsure) || error.is(ErrorReason::MethodNotSupported)
}

/// An answer that says "done" of a balancer that does not serve is not believed.
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
        state @ (LoadBalancerState::Unknown
        | LoadBalancerState::Deleting
        | LoadBalancerState::Absent
        | LoadBalancerState::NotOwned) => Err(CloudError {
            method: "EnsureLoadBalancer",
            reason: None,
            code: tonic::Code::Internal,
            message: format!("the provider says that it is done, but the balancer is {state:?}"),
            retry_after: None,
        }),
    }
}

/// The label of a result in metrics.
pub(super) fn result<T>(
    answer: &Result<T, CloudError>,
    in_progress: impl Fn(&T) -> &Option<InProgress>,
) -> String {
    match answer {
        Ok(answer) if in_progress(answer).is_some() => "in_progress".to_owned(),
        Ok(_) => "ok".to_owned(),
        Err(error) => error.label(),
    }
}
