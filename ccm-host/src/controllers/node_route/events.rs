//! The Events of this controller on Nodes, and which troubles were reported already.

use std::time::Duration;

use ipnet::IpNet;

use super::{Controller, decide::Trouble, subject::Subject};
use crate::{
    cloud::{CloudError, ErrorReason, Route},
    kube::{events::EventType, node::Node},
    reconcile::passes_by_itself,
};

/// The component that Events are recorded under; upstream's, underscore included.
pub(super) const COMPONENT: &str = "route_controller";

impl Controller {
    /// A route could not be created.
    pub(super) fn not_created(&self, node: &Node, destination: IpNet, took: Duration, error: &CloudError) {
        if self.is_quiet(node, error) {
            return;
        }
        let message = format!(
            "no route {} to {destination} for node {} after {took:.1?}: {error}",
            node.uid, node.name
        );
        self.warn(node, "FailedToCreateRoute", message);
    }

    /// A route was created, but leads nowhere.
    pub(super) fn leads_nowhere(&self, node: &Node, destination: IpNet) {
        let message = format!(
            "the route to {destination} exists, but the cloud reports that its target, node {}, is unreachable",
            node.name
        );
        self.warn(node, "FailedToCreateRoute", message);
    }

    /// A route could not be removed.
    pub(super) fn not_removed(&self, node: &Node, route: &Route, error: &CloudError) {
        if self.is_quiet(node, error) {
            return;
        }
        let message = format!("the route {} to {} is not removed: {error}", route.id, route.destination);
        self.warn(node, "FailedToDeleteRoute", message);
    }

    /// Reports those of a node's current troubles that are new.
    pub(super) fn troubles(&self, node: &Node, troubles: Vec<Trouble>) {
        for trouble in self.told.lock().news(&node.name, troubles, Trouble::clone) {
            let (reason, message) = words(&trouble);
            self.warn(node, reason, message);
        }
    }

    /// Errors not worth an Event to the node's owner: another leader or a moment's patience resolves them.
    fn is_quiet(&self, node: &Node, error: &CloudError) -> bool {
        use ErrorReason as R;
        matches!(error.reason, Some(R::StaleLeader | R::ConcurrentOperation))
            || passes_by_itself(error, self.queue.failing_for(&Subject::Node(node.name.clone())))
    }

    fn warn(&self, node: &Node, reason: &'static str, message: String) {
        self.recorder.record(node, EventType::Warning, reason, message);
    }
}

fn words(trouble: &Trouble) -> (&'static str, String) {
    match trouble {
        Trouble::Outside(destination) => (
            "PodCIDROutsideClusterCIDR",
            format!(
                "the host creates no route to the pod CIDR {destination}: it is outside --cluster-cidr, where routes are \
                 never removed"
            ),
        ),
        Trouble::Taken(destination, holder) => (
            "PodCIDRConflict",
            format!(
                "the pod CIDR {destination} is also that of the older node {holder}, which keeps the route"
            ),
        ),
        Trouble::Several(destination, count) => {
            ("DuplicateRoutes", format!("{count} routes lead to the pod CIDR {destination}"))
        }
    }
}
