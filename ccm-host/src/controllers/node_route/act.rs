//! Carries out what was decided for one node: routes first, then the condition.
//!
//! In: a name. Out: calls to the provider, answers in its table, the condition of the node, and when to reconcile
//! again. The destinations of a node are handled concurrently.

mod routes;
mod show;

use std::sync::Arc;

use futures::future::join_all;

use self::routes::LaneEnd;
pub(super) use self::show::Shown;
use super::{
    Cloud, Controller,
    condition::{self, Reach},
    decide::{Lane, Plan, decide},
    observe::Owner,
    subject::Again,
    table::Learnt,
};
use crate::kube::{node::Node, queue::Outcome};

/// Delay that lets the cache catch up with a newer live read.
const CACHE_IS_BEHIND: std::time::Duration = std::time::Duration::from_secs(1);

impl Controller {
    /// Does everything required for a node, whether it exists or not.
    pub(super) async fn look_at_node(&self, name: &str) -> Outcome {
        let node = self.parts.nodes.get(name);
        let owner = match node.as_deref().map(|node| self.owner(node)) {
            None => None,
            Some(Owner::Of(cloud)) => Some(cloud.name()),
            Some(Owner::Later | Owner::Nobody) => return Outcome::Done,
        };
        let mut again = Again::default();
        for cloud in self.clouds.iter().filter(|cloud| cloud.serves_routes()) {
            // The first list requeues every node.
            let Some(learnt) = cloud.learnt() else { continue };
            let is_owner = owner == Some(cloud.name());
            let plan = decide(&self.facts(cloud, name, node.as_deref(), is_owner));
            let reaches = self.carry_out(cloud, name, node.as_ref(), &plan, &mut again).await;
            if let Some(node) = node.as_ref().filter(|_| is_owner) {
                self.events.troubles(node, plan.troubles.clone());
                let reaches: Vec<Reach> = reaches.into_iter().chain(plan.unreached()).collect();
                let wanted = condition::wanted(plan.concerned, &reaches, learnt == Learnt::Whole);
                if let Some(wanted) = wanted {
                    self.show(node, &wanted, &mut again).await;
                }
            }
        }
        again.outcome()
    }

    /// Returns the reach of each lane of the plan.
    async fn carry_out(
        &self,
        cloud: &Cloud,
        name: &str,
        node: Option<&Arc<Node>>,
        plan: &Plan,
        again: &mut Again,
    ) -> Vec<Reach> {
        let may_remove =
            plan.removals().next().is_some() && self.may_remove(cloud, name, node.map(|n| &**n), again).await;
        let stale = plan.stale.iter().filter(|_| may_remove);
        let (lanes, removed) = tokio::join!(
            join_all(plan.lanes.iter().map(|lane| self.work(cloud, node, lane, may_remove))),
            join_all(stale.map(|route| self.remove(cloud, node.map(|n| &**n), route))),
        );
        removed.into_iter().for_each(|end| again.join(end));
        lanes
            .into_iter()
            .map(|LaneEnd { reach, again: lane }| {
                again.join(lane);
                reach
            })
            .collect()
    }

    /// Removes the routes beside the right one first, then ensures the right one.
    async fn work(&self, cloud: &Cloud, node: Option<&Arc<Node>>, lane: &Lane, may_remove: bool) -> LaneEnd {
        let mut end = LaneEnd { reach: Reach::Stands, again: Again::default() };
        for route in lane.remove.iter().filter(|_| may_remove) {
            end.again.join(self.remove(cloud, node.map(|n| &**n), route).await);
        }
        if let Some(node) = node.filter(|_| lane.ensure) {
            let LaneEnd { reach, again } = self.ensure(cloud, node, lane).await;
            end.reach = reach;
            end.again.join(again);
        }
        end
    }

    /// Whether a live read shows the node as it was when the removals were decided, and its provider is healthy.
    async fn may_remove(&self, cloud: &Cloud, name: &str, node: Option<&Node>, again: &mut Again) -> bool {
        let live = {
            let Ok(_permit) = self.nodes_at_once.acquire().await else { return false };
            self.parts.writer.get::<Node>(&name.to_owned(), &self.parts.nodes.keep()).await
        };
        let live = match live {
            Ok(live) => live,
            Err(error) => {
                again.failed(anyhow::Error::from(error));
                return false;
            }
        };
        if !is_same(node, live.as_ref()) {
            again.after(CACHE_IS_BEHIND);
            return false;
        }
        if !cloud.is_trusted() {
            // The node is requeued when the provider is healthy again.
            tracing::info!(
                node = name,
                provider = cloud.name(),
                "no route is removed: the provider is not well"
            );
            return false;
        }
        true
    }
}

/// Whether everything that routes depend on is unchanged. A node that no longer exists is no reason to keep its
/// routes.
fn is_same(cached: Option<&Node>, live: Option<&Node>) -> bool {
    match (cached, live) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(cached), Some(live)) => {
            (&cached.uid, &cached.pod_cidrs, &cached.provider_id)
                == (&live.uid, &live.pod_cidrs, &live.provider_id)
        }
    }
}
