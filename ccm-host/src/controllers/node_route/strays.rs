//! Routes that no node can be told from: blackholes without a target, leftovers of machines that have no node.
//!
//! They lie inside of a cluster CIDR, and no node wants what they lead to; so upstream removes them, and so do we. The
//! provider is given id and target, and does not remove a route that became another one.

use super::{Shared, outcome::Again, subject::Subject};
use crate::kube::queue::Outcome;

impl Shared {
    /// Removes the route if it is still nobody's.
    pub(super) async fn look_at_stray(&self, provider: &str, id: &str) -> Outcome {
        let Some(cloud) = self.clouds.iter().find(|cloud| cloud.name() == provider) else {
            return Outcome::Done;
        };
        let route = cloud.table.lock().get(id).cloned();
        let again = match route {
            // It is looked at again when the provider is well.
            Some(route) if self.is_stray(&route) && cloud.is_trusted() => {
                self.remove(cloud, None, &route).await
            }
            _ => Again::default(),
        };
        again.outcome()
    }

    /// Queues a route that leads to no node that is known.
    pub(super) fn queue_stray(&self, provider: &str, id: &str) {
        self.queue.add(Subject::Stray { provider: provider.to_owned(), id: id.to_owned() });
    }
}
