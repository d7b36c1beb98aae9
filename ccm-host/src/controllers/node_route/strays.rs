//! Removes routes that cannot be traced to a node: blackholes without a target, leftovers of instances without a
//! node.
//!
//! They are inside a cluster CIDR, and no node wants their destination; so upstream removes them, and so do we. The
//! provider is given id and target, and does not remove a route that has changed.

use super::{Controller, outcome::Again, subject::Subject};
use crate::kube::queue::Outcome;

impl Controller {
    /// Removes the route if it is still a stray.
    pub(super) async fn look_at_stray(&self, provider: &str, id: &str) -> Outcome {
        let Some(cloud) = self.clouds.iter().find(|cloud| cloud.name() == provider) else {
            return Outcome::Done;
        };
        let route = cloud.table.lock().get(id).cloned();
        let again = match route {
            // The route is requeued when the provider is healthy again.
            Some(route) if self.is_stray(&route) && cloud.is_trusted() => {
                self.remove(cloud, None, &route).await
            }
            _ => Again::default(),
        };
        again.outcome()
    }

    /// Queues a route that leads to no known node.
    pub(super) fn queue_stray(&self, provider: &str, id: &str) {
        self.queue.add(Subject::Stray { provider: provider.to_owned(), id: id.to_owned() });
    }
}
