//! Creates or removes one route, and handles the answer.
//!
//! A route that cannot be traced to a node is a stray: a blackhole without a target, or a leftover of an instance without
//! a node. It is inside a cluster CIDR and no node wants its destination, so upstream removes it, and so do we. The
//! provider is given id and target, and does not remove a route that has changed.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Cloud, Controller, Lane, Node, Reach};
use crate::{
    cloud::{CloudError, EnsureRoute, ErrorReason, Route, RouteState},
    controllers::node_route::{
        metrics::Operation,
        subject::{Again, Subject},
    },
    kube::queue::Outcome,
    reconcile::SLOW_RETRY,
};

/// The result for one destination.
pub(super) struct LaneEnd {
    pub(super) reach: Reach,
    pub(super) again: Again,
}

impl Controller {
    /// Makes the destination of a lane lead to the node.
    pub(super) async fn ensure(&self, cloud: &Cloud, node: &Arc<Node>, lane: &Lane) -> LaneEnd {
        // A route that leads to the node already keeps doing so, whether the change succeeds or not.
        let not_done = if lane.leads { Reach::Unknown } else { Reach::Missing };
        let mut end = LaneEnd { reach: not_done, again: Again::default() };
        let destination = lane.destination;
        let begun = Instant::now();
        let answer = cloud.provider.ensure_route(EnsureRoute { destination, node: Arc::clone(node) }).await;
        let ended = |result| {
            self.metrics.ended(cloud.name(), Operation::Ensure, result, begun.elapsed());
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                ended(error.label());
                tracing::warn!(node = node.name, %destination, %error, "no route");
                self.events.not_created(
                    node,
                    destination,
                    begun.elapsed(),
                    &error,
                    self.failing_for(&node.name),
                );
                end.again.error(&error);
                return end;
            }
        };
        self.events.pass_on(node, &answer.events);
        if let Some(progress) = answer.in_progress {
            ended("in_progress".to_owned());
            end.again.after(progress.retry_after);
            return end;
        }
        ended("ok".to_owned());
        if let Some(route) = answer.route {
            end.reach = self.stands(cloud, node, route, &mut end.again);
        }
        end
    }

    fn stands(&self, cloud: &Cloud, node: &Node, route: Route, again: &mut Again) -> Reach {
        let (destination, leads) = (route.destination, route.state != RouteState::Blackhole);
        {
            let mut table = cloud.table.lock();
            table.ensured(route);
            self.metrics.known(cloud.name(), table.len());
        }
        if self.claims.lock().holder(&destination) != Some(node.name.as_str()) {
            // Another node became the holder meanwhile, and it is unknown which of the two calls came last.
            cloud.doubted.notify_one();
        }
        if leads {
            tracing::info!(node = node.name, %destination, "the route stands");
            return Reach::Stands;
        }
        self.events.leads_nowhere(node, destination);
        again.after(SLOW_RETRY);
        Reach::Missing
    }

    /// Removes a route; `node` receives the Events.
    pub(in crate::controllers::node_route) async fn remove(
        &self,
        cloud: &Cloud,
        node: Option<&Node>,
        route: &Arc<Route>,
    ) -> Again {
        let mut again = Again::default();
        let begun = Instant::now();
        let answer = cloud.provider.delete_route((**route).clone()).await;
        let result = match &answer {
            Ok(Some(_)) => "in_progress".to_owned(),
            Ok(None) => "ok".to_owned(),
            Err(error) => error.label(),
        };
        self.metrics.ended(cloud.name(), Operation::Delete, result, begun.elapsed());
        match answer {
            Ok(Some(progress)) => again.after(progress.retry_after),
            Ok(None) => self.is_removed(cloud, node, route),
            Err(error) if error.is(ErrorReason::RouteChanged) => {
                tracing::info!(route = route.id, destination = %route.destination, "changed in the meantime, listing again");
                cloud.doubted.notify_one();
            }
            Err(error) => self.not_removed(node, route, &error, &mut again),
        }
        again
    }

    fn is_removed(&self, cloud: &Cloud, node: Option<&Node>, route: &Route) {
        tracing::info!(route = route.id, destination = %route.destination, provider = cloud.name(), "route removed");
        {
            let mut table = cloud.table.lock();
            table.removed(route);
            self.metrics.known(cloud.name(), table.len());
        }
        // A node that has come back meanwhile found the route still there.
        let holder = self.claims.lock().holder(&route.destination).map(str::to_owned);
        holder
            .filter(|name| node.is_none_or(|node| node.name != *name))
            .into_iter()
            .for_each(|name| self.queue_node(name));
    }

    fn not_removed(&self, node: Option<&Node>, route: &Route, error: &CloudError, again: &mut Again) {
        tracing::warn!(route = route.id, destination = %route.destination, %error, "route not removed");
        if let Some(node) = node {
            self.events.not_removed(node, route, error, self.failing_for(&node.name));
        }
        again.error(error);
    }

    fn failing_for(&self, node: &str) -> Duration {
        self.queue.failing_for(&Subject::Node(node.to_owned()))
    }
}

impl Controller {
    /// Removes the route if it is still a stray.
    pub(in crate::controllers::node_route) async fn look_at_stray(
        &self,
        provider: &str,
        id: &str,
    ) -> Outcome {
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
    pub(in crate::controllers::node_route) fn queue_stray(&self, provider: &str, id: &str) {
        self.queue.add(Subject::Stray { provider: provider.to_owned(), id: id.to_owned() });
    }
}
