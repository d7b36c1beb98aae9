//! The Events of this controller, with upstream's reasons and types.
//!
//! In: what happened, once the writes concerned have succeeded. Out: Events on the Service. The lane remembers the
//! last warning, so that it is not repeated.

use super::lane::Lane;
use crate::{
    cloud::{BackendSet, CloudError, LoadBalancer, ProviderEvent},
    kube::{
        events::{EventType, Recorder, Regarding},
        service::Service,
    },
    reconcile::pass_on,
};

/// The component that Events are recorded under; upstream's.
pub(super) const COMPONENT: &str = "service-controller";

/// Maximum node names in one Event.
const NAMES: usize = 20;

/// The flag that lets the host remove orphans.
const DELETE_FLAG: &str = "--delete-orphaned-load-balancers";

impl From<&LoadBalancer> for Regarding {
    fn from(balancer: &LoadBalancer) -> Self {
        Self::service(&balancer.key, &balancer.service_uid)
    }
}

/// A warning Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Warning {
    reason: &'static str,
    message: String,
}

impl Warning {
    /// A balancer cannot be created, changed, removed for its Service, or published.
    pub(super) fn sync(why: impl std::fmt::Display) -> Self {
        Self { reason: "SyncLoadBalancerFailed", message: format!("Error syncing load balancer: {why}") }
    }

    /// A balancer did not get its nodes.
    pub(super) fn update(backends: &BackendSet, why: &CloudError) -> Self {
        let names = names(backends.nodes.iter().map(|node| node.name.as_str()));
        let total = backends.nodes.len();
        let message = format!("Error updating load balancer with {total} nodes [{names}]: {why}");
        Self { reason: "UpdateLoadBalancerFailed", message }
    }

    /// A balancer whose Service is gone, or was replaced, cannot be removed.
    pub(super) fn delete(why: impl std::fmt::Display) -> Self {
        Self { reason: "DeleteLoadBalancerFailed", message: format!("Error deleting load balancer: {why}") }
    }

    /// The balancer has no nodes.
    pub(super) fn no_nodes() -> Self {
        let message = "There are no available nodes for LoadBalancer".to_owned();
        Self { reason: "UnAvailableLoadBalancer", message }
    }
}

/// Records Events on Services.
#[derive(Debug, Clone)]
pub(super) struct Events(Recorder);

impl Events {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self(recorder)
    }

    pub(super) fn ensuring(&self, service: &Service) {
        self.normal(service, "EnsuringLoadBalancer", "Ensuring load balancer");
    }

    pub(super) fn ensured(&self, service: &Service) {
        self.normal(service, "EnsuredLoadBalancer", "Ensured load balancer");
    }

    pub(super) fn updated(&self, service: &Service) {
        self.normal(service, "UpdatedLoadBalancer", "Updated load balancer with new hosts");
    }

    pub(super) fn deleting(&self, service: &Service) {
        self.normal(service, "DeletingLoadBalancer", "Deleting load balancer");
    }

    pub(super) fn deleted(&self, service: impl Into<Regarding>) {
        self.normal(service, "DeletedLoadBalancer", "Deleted load balancer");
    }

    /// The Service no longer exists, but the Event is visible in its namespace.
    pub(super) fn orphaned(&self, balancer: &LoadBalancer, will_go: bool) {
        let then = if will_go {
            "it is removed by the next sweep".to_owned()
        } else {
            format!("remove it in the cloud, or let the host do so with {DELETE_FLAG}")
        };
        let message =
            format!("Load balancer {:?} of this cluster has no Service any more; {then}", balancer.id);
        self.0.record(balancer, EventType::Warning, "OrphanedLoadBalancer", message);
    }

    /// The Service is served by another provider than the one that has this balancer.
    pub(super) fn left_behind(&self, balancer: &LoadBalancer, provider: &str) {
        let message = format!(
            "Load balancer {:?} at provider {provider:?} is left over, since another provider now serves the Service; it is removed",
            balancer.id
        );
        self.0.record(balancer, EventType::Warning, "OrphanedLoadBalancer", message);
    }

    pub(super) fn orphan_stays(&self, balancer: &LoadBalancer, why: &CloudError) {
        let Warning { reason, message } = Warning::delete(why);
        self.0.record(balancer, EventType::Warning, reason, message);
    }

    /// Writes a warning unless it was the last one written.
    pub(super) fn warn(&self, lane: &mut Lane, service: &Service, warning: Warning) {
        let Warning { reason, message } = warning;
        let text = format!("{reason} {message}");
        if lane.warned.as_ref() == Some(&text) {
            return;
        }
        lane.warned = Some(text);
        self.0.record(service, EventType::Warning, reason, message);
    }

    /// Passes a provider's Events on to the owner of the Service.
    pub(super) fn of_provider(&self, service: impl Into<Regarding>, events: &[ProviderEvent]) {
        pass_on(&self.0, service, events);
    }

    fn normal(&self, service: impl Into<Regarding>, reason: &'static str, message: &str) {
        self.0.record(service, EventType::Normal, reason, message);
    }
}

/// The first names, sorted, and the number of further ones.
fn names<'a>(all: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = all.len().saturating_sub(NAMES);
    let mut shown: Vec<_> = all.take(NAMES).map(str::to_owned).collect();
    shown.sort_unstable();
    if more > 0 {
        shown.push(format!("<{more} more>"));
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kube::fixtures::{recorder, service};

    #[test]
    fn names_are_cut_after_twenty() {
        let all: Vec<String> = (10..35).map(|number| format!("n{number}")).collect();
        let text = names(all.iter().map(String::as_str));
        assert!(text.starts_with("n10, n11, ") && text.ends_with(", n29, <5 more>"), "LBN-35: {text}");
        assert_eq!(names(["b", "a"].into_iter()), "a, b");
    }

    #[test]
    fn a_warning_is_written_again_only_if_it_differs() {
        let (recorder, recorded) = recorder();
        let (events, service) = (Events::new(recorder), service("web"));
        let mut lane = Lane::new(Arc::new(service.clone()));
        for why in ["quota", "quota", "rights", "quota"] {
            events.warn(&mut lane, &service, Warning::sync(why));
        }
        let texts: Vec<_> = recorded.take().into_iter().map(|(_, _, text)| text).collect();
        let want = ["quota", "rights", "quota"].map(|why| format!("Error syncing load balancer: {why}"));
        assert_eq!(texts, want);
    }
}
