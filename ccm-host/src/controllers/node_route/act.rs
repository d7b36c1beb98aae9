//! Carries out what was decided for one node: routes first, then the condition. Removes strays.
//!
//! In: a name, or the id of a route. Out: calls to the provider, answers in its table, the condition of the node, and
//! when to reconcile again. The destinations of a node are handled concurrently.
//!
//! A route that cannot be traced to a node is a stray: a blackhole without a target, or a leftover of an instance without
//! a node. It is inside a cluster CIDR and no node wants its destination, so upstream removes it, and so do we. The
//! provider is given id and target, and does not remove a route that has changed.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use tokio::time::Instant;

use super::{
    Cloud, Controller,
    condition::{self, Reach},
    decide::{Lane, Plan, decide},
    table::Learnt,
};
use crate::{
    cloud::{EnsureRoute, EnsuredRoute, ErrorReason, Route, RouteState},
    controllers::node_instance,
    kube::{node::Node, queue::Outcome},
    reconcile::{Retry, SLOW_RETRY, measured, pass_on, result},
};

const FAILED_TO_CREATE: &str = "FailedToCreateRoute";

/// Delay that lets the cache catch up with a newer live read.
const CACHE_IS_BEHIND: Duration = Duration::from_secs(1);

impl Controller {
    /// Does everything required for a node, whether it exists or not.
    pub(super) async fn look_at_node(&self, name: &str) -> Outcome {
        for cloud in self.clouds.iter().filter(|cloud| cloud.serves_routes()) {
            node_instance::known_to(&self.parts.nodes, &*cloud.provider).await;
        }
        let node = self.parts.nodes.get(name);
        let owner = match node.as_deref().map(|node| self.owner(node)) {
            None => None,
            Some(Some(cloud)) => Some(cloud.name()),
            Some(None) => return Outcome::Done,
        };
        let mut again = Outcome::Done;
        for cloud in self.clouds.iter().filter(|cloud| cloud.serves_routes()) {
            // The first list requeues every node.
            let Some(learnt) = cloud.learnt() else { continue };
            let is_owner = owner == Some(cloud.name());
            let plan = decide(&self.facts(cloud, name, node.as_deref(), is_owner));
            let (reaches, ended) = self.carry_out(cloud, name, node.as_ref(), &plan).await;
            again = earlier(again, ended);
            if let Some(node) = node.as_ref().filter(|_| is_owner) {
                self.troubles(node, plan.troubles.clone());
                let reaches: Vec<Reach> = reaches.into_iter().chain(plan.unreached()).collect();
                let wanted = condition::wanted(node, plan.concerned, &reaches, learnt == Learnt::Whole);
                if let Some(wanted) = wanted {
                    again = earlier(again, self.show(node, &wanted).await);
                }
            }
        }
        again
    }

    /// Returns the reach of each lane of the plan, and when to reconcile again.
    async fn carry_out(
        &self,
        cloud: &Cloud,
        name: &str,
        node: Option<&Arc<Node>>,
        plan: &Plan,
    ) -> (Vec<Reach>, Outcome) {
        let allowed = match plan.removals().next() {
            Some(_) => self.may_remove(cloud, name, node).await,
            None => Err(Outcome::Done),
        };
        let may_remove = allowed.is_ok();
        let stale = plan.stale.iter().filter(|_| may_remove);
        let (lanes, removed) = tokio::join!(
            join_all(plan.lanes.iter().map(|lane| self.work(cloud, node, lane, may_remove))),
            join_all(stale.map(|route| self.remove(cloud, node, route))),
        );
        let (reaches, ended): (_, Vec<_>) = lanes.into_iter().unzip();
        let all = allowed.err().into_iter().chain(removed).chain(ended);
        (reaches, all.fold(Outcome::Done, earlier))
    }

    /// Removes the routes beside the right one first, then ensures the right one.
    async fn work(
        &self,
        cloud: &Cloud,
        node: Option<&Arc<Node>>,
        lane: &Lane,
        may_remove: bool,
    ) -> (Reach, Outcome) {
        let mut again = Outcome::Done;
        for route in lane.remove.iter().filter(|_| may_remove) {
            again = earlier(again, self.remove(cloud, node, route).await);
        }
        let Some(node) = node.filter(|_| lane.ensure) else { return (Reach::Stands, again) };
        let (reach, ended) = self.ensure(cloud, node, lane).await;
        (reach, earlier(again, ended))
    }

    /// Whether a live read shows the node as it was when the removals were decided, and its provider is healthy. If not,
    /// says when to reconcile again.
    async fn may_remove(&self, cloud: &Cloud, name: &str, node: Option<&Arc<Node>>) -> Result<(), Outcome> {
        let live = {
            let Ok(_permit) = self.nodes_at_once.acquire().await else { return Err(Outcome::Done) };
            self.parts.writer.get::<Node>(&name.to_owned(), &self.parts.nodes.keep()).await
        };
        let live = live.map_err(|error| Outcome::retry(anyhow::Error::from(error)))?;
        if !is_same(node, live.as_ref()) {
            return Err(Outcome::RetryAfter(CACHE_IS_BEHIND));
        }
        if !cloud.is_trusted() {
            // The node is requeued when the provider is healthy again.
            tracing::info!(
                node = name,
                provider = cloud.name(),
                "no route is removed: the provider is not well"
            );
            return Err(Outcome::Done);
        }
        Ok(())
    }

    /// Makes the destination of a lane lead to the node.
    async fn ensure(&self, cloud: &Cloud, node: &Arc<Node>, lane: &Lane) -> (Reach, Outcome) {
        // A route that leads to the node already keeps doing so, whether the change succeeds or not.
        let not_done = if lane.leads { Reach::Unknown } else { Reach::Missing };
        let destination = lane.destination;
        let begun = Instant::now();
        let call = cloud.provider.ensure_route(EnsureRoute { destination, node: Arc::clone(node) });
        let done = |ensured: &EnsuredRoute| result(&ensured.in_progress);
        let ensured = match measured(&self.metrics.operations, &*cloud.provider, "ensure", call, done).await {
            Ok(ensured) => ensured,
            Err(error) => {
                tracing::warn!(node = node.name, %destination, %error, "no route");
                let (uid, name, took) = (&node.uid, &node.name, begun.elapsed());
                let what = format!("no route {uid} to {destination} for node {name} after {took:.1?}");
                self.failed(node, FAILED_TO_CREATE, &what, &error);
                return (not_done, Retry::without_sweep(&error).outcome(&error));
            }
        };
        pass_on(&self.recorder, &**node, &ensured.events);
        match (ensured.in_progress, ensured.route) {
            (Some(progress), _) => (not_done, Outcome::RetryAfter(progress.retry_after)),
            (None, Some(route)) => self.stands(cloud, node, route),
            (None, None) => (not_done, Outcome::Done),
        }
    }

    fn stands(&self, cloud: &Cloud, node: &Node, route: Route) -> (Reach, Outcome) {
        let (destination, leads) = (route.destination, route.state != RouteState::Blackhole);
        self.change(cloud, |table| table.ensured(route));
        if self.claims.lock().holder(&destination) != Some(node.name.as_str()) {
            // Another node became the holder meanwhile, and it is unknown which of the two calls came last.
            cloud.doubted.notify_one();
        }
        if leads {
            tracing::info!(node = node.name, %destination, "the route stands");
            return (Reach::Stands, Outcome::Done);
        }
        let message = format!(
            "the route to {destination} exists, but the cloud reports that its target, node {}, is unreachable",
            node.name
        );
        self.warn(node, FAILED_TO_CREATE, message);
        (Reach::Missing, Outcome::RetryAfter(SLOW_RETRY))
    }

    /// Removes a route; `node` receives the Events.
    async fn remove(&self, cloud: &Cloud, node: Option<&Arc<Node>>, route: &Route) -> Outcome {
        let call = cloud.provider.delete_route(route.clone());
        match measured(&self.metrics.operations, &*cloud.provider, "delete", call, result).await {
            Ok(Some(progress)) => return Outcome::RetryAfter(progress.retry_after),
            Ok(None) => self.is_removed(cloud, node, route),
            Err(error) if error.is(ErrorReason::RouteChanged) => {
                tracing::info!(route = route.id, destination = %route.destination, "changed in the meantime, listing again");
                cloud.doubted.notify_one();
            }
            Err(error) => {
                tracing::warn!(route = route.id, destination = %route.destination, %error, "route not removed");
                if let Some(node) = node {
                    let what = format!("the route {} to {} is not removed", route.id, route.destination);
                    self.failed(node, "FailedToDeleteRoute", &what, &error);
                }
                return Retry::without_sweep(&error).outcome(&error);
            }
        }
        Outcome::Done
    }

    fn is_removed(&self, cloud: &Cloud, node: Option<&Arc<Node>>, route: &Route) {
        tracing::info!(route = route.id, destination = %route.destination, provider = cloud.name(), "route removed");
        self.change(cloud, |table| table.removed(route));
        // A node that has come back meanwhile found the route still there.
        let holder = self.claims.lock().holder(&route.destination).map(str::to_owned);
        holder
            .filter(|name| node.is_none_or(|node| node.name != *name))
            .into_iter()
            .for_each(|name| self.queue_node(name));
    }

    /// Removes the route if it is still a stray.
    pub(super) async fn look_at_stray(&self, provider: &str, id: &str) -> Outcome {
        let Some(cloud) = self.clouds.iter().find(|cloud| cloud.name() == provider) else {
            return Outcome::Done;
        };
        let route = cloud.table.lock().get(id).cloned();
        match route {
            // The route is requeued when the provider is healthy again.
            Some(route) if self.is_stray(&route) && cloud.is_trusted() => {
                self.remove(cloud, None, &route).await
            }
            _ => Outcome::Done,
        }
    }
}

/// The earlier of two retries. A failure backs off, even if something else is due at a fixed time; of several failures,
/// the first is told.
fn earlier(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Retry(why), _) | (_, Outcome::Retry(why)) => Outcome::Retry(why),
        (Outcome::RetryAfter(one), Outcome::RetryAfter(other)) => Outcome::RetryAfter(one.min(other)),
        (again, Outcome::Done) | (_, again) => again,
    }
}

/// Whether everything that routes depend on is unchanged. A node that no longer exists is no reason to keep its
/// routes.
fn is_same(cached: Option<&Arc<Node>>, live: Option<&Node>) -> bool {
    match (cached, live) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(cached), Some(live)) => {
            (&cached.uid, &cached.pod_cidrs, &cached.provider_id)
                == (&live.uid, &live.pod_cidrs, &live.provider_id)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_times_the_earliest_counts_and_failures_back_off() {
        let after = |seconds| Outcome::RetryAfter(Duration::from_secs(seconds));
        let failed = |why: &str| Outcome::Retry(why.to_owned());
        assert_eq!(earlier(earlier(Outcome::Done, after(9)), after(3)), after(3));
        assert_eq!(earlier(earlier(after(9), failed("first")), failed("second")), failed("first"));
        assert_eq!(earlier(earlier(failed("first"), Outcome::Done), after(3)), failed("first"));
        assert_eq!(earlier(after(3), Outcome::Done), after(3));
    }
}
