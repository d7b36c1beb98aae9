//! Writes finalizer, status, annotations and conditions of a Service: only what differs, and only to the Service that
//! was observed.

use std::sync::Arc;

use super::{Act, Step, lane_of};
use crate::{
    cloud::ServiceCondition,
    controllers::service_lb::{
        events::Warning,
        lane::{Difference, Lane, Presence},
        services::{FINALIZER, has_finalizer, is_load_balancer},
    },
    kube::{
        patch::{
            Patch, WantedCondition, WriteError, service_annotations, service_condition, service_finalizer,
            service_ingress,
        },
        queue::Outcome,
        service::Service,
    },
};

impl Act<'_> {
    /// Brings finalizer, status and annotations in line with what is applied.
    pub(super) async fn publish(&self, lane: &mut Option<Lane>) -> Step {
        let Some(service) = self.seen.facts.service.clone() else { return Step::End(Outcome::Done) };
        let lane = lane_of(lane, &service);
        if let Err(error) = self.set_finalizer(&service, true).await {
            return self.unwritten(lane, &service, "finalizer", &error);
        }
        if let Err(error) = self.write_answer(lane).await {
            return self.unwritten(lane, &service, "status", &error);
        }
        lane.settled = true;
        Step::End(Outcome::Done)
    }

    /// Publishes what is applied: a balancer that works is usable even while a change has to wait.
    pub(super) async fn wait(&self, lane: &mut Option<Lane>, outcome: Outcome) -> Step {
        if let (Some(service), Some(lane)) = (&self.seen.facts.service, lane.as_mut())
            && is_load_balancer(service)
            && lane.applied.is_some()
            && let Err(error) = self.write_answer(lane).await
        {
            return self.unwritten(lane, service, "status", &error);
        }
        Step::End(outcome)
    }

    /// Ensures that the finalizer is present before the balancer is. Where the balancer may be gone, a finalizer in
    /// the cache proves nothing: the cache may not have seen yet that the finalizer, or the Service, was removed with
    /// it.
    pub(super) async fn guard(&self, service: &Service, lane: &Lane) -> Result<(), WriteError> {
        let stands = lane.presence == Presence::Present && lane.doubt != Difference::Service;
        if stands || !has_finalizer(service) {
            return self.set_finalizer(service, true).await;
        }
        self.set_finalizer(&self.fresh(service).await?, true).await
    }

    /// Adds or removes our finalizer and leaves the others. On a conflict, reads the Service live and retries once.
    pub(super) async fn set_finalizer(&self, service: &Service, present: bool) -> Result<(), WriteError> {
        let first = self.write(service_finalizer(service, FINALIZER, present)).await;
        if !matches!(first, Err(WriteError::Conflict)) {
            return first;
        }
        let fresh = self.fresh(service).await?;
        if present && fresh.is_deleting() {
            return Err(WriteError::Conflict);
        }
        self.write(service_finalizer(&fresh, FINALIZER, present)).await
    }

    /// The Service as the API has it now.
    async fn fresh(&self, service: &Service) -> Result<Service, WriteError> {
        match self.controller.live(self.key).await? {
            None => Err(WriteError::NotFound),
            Some(fresh) if fresh.uid != service.uid => Err(WriteError::Gone),
            Some(fresh) => Ok(fresh),
        }
    }

    /// Writes what the provider answered; the client has checked that the annotations are the provider's own.
    pub(super) async fn write_answer(&self, lane: &mut Lane) -> Result<(), WriteError> {
        let Some(service) = &self.seen.facts.service else { return Ok(()) };
        if let Some(ingress) = &lane.ingress {
            self.write(service_ingress(service, ingress)).await?;
        }
        let written = self.write(service_annotations(service, &lane.annotations)).await;
        self.unless_refused("annotations", lane, service, written)?;
        lane.annotations.clear();
        while let Some((type_, ServiceCondition { status, reason, message })) =
            lane.conditions.first_key_value()
        {
            let wanted = WantedCondition { type_, status, reason, message };
            let written = self.write(service_condition(service, &wanted, crate::clock::now())).await;
            self.unless_refused("a condition", lane, service, written)?;
            lane.conditions.pop_first();
        }
        Ok(())
    }

    /// Turns a refusal by the apiserver into a warning: it is final, and nothing else should wait for it.
    fn unless_refused(
        &self,
        what: &str,
        lane: &mut Lane,
        service: &Service,
        written: Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        match written {
            Err(WriteError::Invalid(why)) => {
                let why = format!("the apiserver refuses {what} of the provider: {why}");
                self.controller.events.warn(lane, service, Warning::sync(why));
                Ok(())
            }
            written => written,
        }
    }

    pub(super) async fn write(&self, patch: Option<Patch>) -> Result<(), WriteError> {
        let Some(patch) = patch else { return Ok(()) };
        self.controller.parts.writer.patch::<Service>(self.key, &patch).await.map(drop)
    }

    /// Handles a failed write.
    pub(super) fn unwritten(
        &self,
        lane: &mut Lane,
        service: &Arc<Service>,
        what: &str,
        error: &WriteError,
    ) -> Step {
        lane.settled = false;
        Step::End(match error {
            // The watch will report the change and so requeue the Service; if it does not, the sweep does.
            WriteError::NotFound | WriteError::Gone | WriteError::NotLeading => Outcome::Done,
            WriteError::HeldBack(again) => Outcome::RetryAfter(*again),
            WriteError::Conflict => {
                Outcome::retry(format_args!("failed to update load balancer {what}: {error}"))
            }
            WriteError::Invalid(_) | WriteError::Other(_) => {
                let why = format!("failed to update load balancer {what}: {error}");
                self.controller.events.warn(lane, service, Warning::sync(&why));
                Outcome::Retry(why)
            }
        })
    }
}
