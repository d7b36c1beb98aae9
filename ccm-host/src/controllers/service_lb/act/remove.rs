//! Removes a balancer. Even if it is reported absent, deletion is requested for as long as the finalizer is present.

use std::{fmt::Display, sync::Arc, time::Duration};

use super::{Act, Step, lane_of};
use crate::{
    cloud::{Accepted, CloudError, DeleteLoadBalancer, ErrorReason, Provider},
    controllers::service_lb::{
        Controller,
        decide::Removal,
        events::Warning,
        lane::{Difference, Intent, Lane, Presence},
        observe::serves_balancers,
        sweep::is_ours,
        wall_micros,
    },
    kube::{
        patch::{WriteError, service_ingress},
        queue::Outcome,
        service::Service,
    },
    reconcile::{measured, result},
};

/// The wanted state announced for a removal.
const GONE: &str = "";

/// Delay before the next reconcile if the cache lacks a Service that still exists.
const CACHE_IS_BEHIND: Duration = Duration::from_secs(1);

impl Act<'_> {
    pub(super) async fn remove(&self, lane: &mut Option<Lane>, removal: Removal) -> Step {
        let Some(subject) = self.subject(lane.as_ref(), removal) else { return Step::End(Outcome::Done) };
        if removal == Removal::Vanished {
            match self.controller.live(self.key).await {
                Ok(Some(live)) if live.uid == subject.uid => {
                    return Step::End(Outcome::RetryAfter(CACHE_IS_BEHIND));
                }
                Ok(_) => {}
                Err(error) => return Step::End(Outcome::retry(error)),
            }
        }
        let mine = lane_of(lane, &subject);
        // A balancer known to be absent is removed without Events.
        let tell = mine.presence != Presence::Absent;
        if tell && mine.announced.as_deref() != Some(GONE) {
            mine.announced = Some(GONE.to_owned());
            self.controller.events.deleting(&subject);
        }
        // A half-deleted balancer no longer matches what was applied: only an Ensure restores it.
        mine.applied = None;
        mine.begin_turn(Difference::Service);
        let holder = mine.holder.clone();
        let may_have_it = |name| holder.as_deref().is_none_or(|holder| holder == name);
        for provider in self.seen.holders.iter().filter(|provider| may_have_it(provider.name())) {
            if let Some(end) = self.remove_at(provider.as_ref(), mine, &subject, removal).await {
                return end;
            }
        }
        mine.presence = Presence::Absent;
        mine.made_as = None;
        mine.attempt = None;
        mine.node_sync = None;
        self.removed(lane, &subject, removal, tell).await
    }

    /// Asks one provider. `Some` ends the run: the deletion is in progress, or failed.
    async fn remove_at(
        &self,
        provider: &dyn Provider,
        lane: &mut Lane,
        subject: &Arc<Service>,
        removal: Removal,
    ) -> Option<Step> {
        let wanted = DeleteLoadBalancer {
            key: self.key.clone(),
            uid: subject.uid.clone(),
            last_known: Some(Arc::clone(subject)),
            revision: lane.revision(None, wall_micros()),
            adopt: self.controller.parts.settings.services.adopt_load_balancers,
        };
        match self.controller.delete(provider, wanted).await {
            Ok(Accepted { in_progress, events }) => {
                self.controller.events.of_provider(&**subject, &events);
                in_progress.map(|in_progress| self.in_progress(lane, Intent::Remove, &in_progress))
            }
            Err(error) if error.is(ErrorReason::ImplementedElsewhere) => {
                tracing::warn!(service = %self.key, provider = provider.name(),
                    "the provider does not serve this load balancer; treated as removed");
                None
            }
            Err(error) => {
                if !self.is_quiet(&error) {
                    self.controller.events.warn(lane, subject, warning(removal, &error));
                }
                Some(Step::End(self.failed(lane, Intent::Remove, &error)))
            }
        }
    }

    /// Nothing is left in the cloud: clears the status, then removes the finalizer.
    async fn removed(
        &self,
        lane: &mut Option<Lane>,
        subject: &Arc<Service>,
        removal: Removal,
        tell: bool,
    ) -> Step {
        if matches!(removal, Removal::Unwanted | Removal::Handover)
            && let Err((what, error)) = self.release(subject, removal).await
            && let Some(lane) = lane.as_mut()
        {
            return self.unwritten(lane, subject, what, &error);
        }
        if tell {
            self.controller.events.deleted(&**subject);
        }
        *lane = None;
        match removal {
            Removal::Former => Step::Again,
            Removal::Unwanted | Removal::Handover | Removal::Vanished => Step::End(Outcome::Done),
        }
    }

    async fn release(
        &self,
        service: &Arc<Service>,
        removal: Removal,
    ) -> Result<(), (&'static str, WriteError)> {
        // Without its last finalizer the Service is gone, and has no status.
        let is_gone = service.is_deleting() && service.finalizers.len() <= 1;
        if !is_gone && removal != Removal::Handover {
            // Status first: once the finalizer is gone, nothing would come back for it.
            self.write(service_ingress(service, &[])).await.map_err(|error| ("status", error))?;
        }
        match self.set_finalizer(service, false).await {
            // The Service is gone, and its finalizer with it.
            Ok(()) | Err(WriteError::NotFound | WriteError::Gone) => Ok(()),
            Err(error) => Err(("finalizer", error)),
        }
    }

    /// Handles another implementation's Service that is being deleted and has the finalizer: cleans it up only if one
    /// of our providers reports that the balancer is ours.
    pub(super) async fn ask_owner(&self, lane: &mut Option<Lane>) -> Step {
        let Some(service) = self.seen.facts.service.clone() else { return Step::End(Outcome::Done) };
        for provider in self.seen.holders.iter().filter(|one| serves_balancers(one.as_ref())) {
            match provider.load_balancer(&service).await {
                Ok(balancer) if is_ours(&balancer) => {
                    let mut owned = Lane::new(Arc::clone(&service));
                    owned.holder = Some(provider.name().to_owned());
                    owned.presence = Presence::Present;
                    *lane = Some(owned);
                    return self.remove(lane, Removal::Handover).await;
                }
                Ok(_) => {}
                Err(error) => return Step::End(Outcome::retry(error)),
            }
        }
        *lane = None;
        Step::End(Outcome::Done)
    }
}

impl Controller {
    /// Calls the provider once, measured.
    pub(in crate::controllers::service_lb) async fn delete(
        &self,
        provider: &dyn Provider,
        wanted: DeleteLoadBalancer,
    ) -> Result<Accepted, CloudError> {
        let call = provider.delete_load_balancer(wanted);
        measured(&self.metrics.operations, provider, "delete", call, |deleted| result(&deleted.in_progress))
            .await
    }
}

/// Like upstream, distinguishes a failed cleanup from a failure to delete a balancer whose Service is gone.
pub(super) fn warning(removal: Removal, why: impl Display) -> Warning {
    match removal {
        Removal::Unwanted | Removal::Handover => Warning::sync(why),
        Removal::Former | Removal::Vanished => Warning::delete(why),
    }
}
