//! The Events of this controller on Nodes, and which troubles were reported already.

use super::{Controller, Subject, decide::Trouble};
use crate::{
    cloud::{CloudError, ErrorReason},
    kube::{events::EventType, node::Node},
    reconcile::passes_by_itself,
};

/// The component that Events are recorded under; upstream's, underscore included.
pub(super) const COMPONENT: &str = "route_controller";

impl Controller {
    /// A call failed; `what` did not happen. Errors that another leader or a moment's patience resolves are not worth an
    /// Event to the node's owner.
    pub(super) fn failed(&self, node: &Node, reason: &'static str, what: &str, error: &CloudError) {
        use ErrorReason as R;
        let failing_for = self.queue.failing_for(&Subject::Node(node.name.clone()));
        let is_quiet = matches!(error.reason, Some(R::StaleLeader | R::ConcurrentOperation))
            || passes_by_itself(error, failing_for);
        if !is_quiet {
            self.warn(node, reason, format!("{what}: {error}"));
        }
    }

    /// Reports those of a node's current troubles that are new.
    pub(super) fn troubles(&self, node: &Node, troubles: Vec<Trouble>) {
        for trouble in self.told.lock().news(&node.name, troubles, Trouble::clone) {
            let (reason, message) = words(&trouble);
            self.warn(node, reason, message);
        }
    }

    pub(super) fn warn(&self, node: &Node, reason: &'static str, message: String) {
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
