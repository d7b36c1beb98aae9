//! Carries out what was decided for one node: routes first, then the condition. Removes strays.
//!
//! In: a name, or the id of a route. Out: calls to the provider, answers in its table, the condition of the node, and
//! reports, which say when to look again. The destinations of a node are handled concurrently.
//!
//! A call may wait for minutes before it begins, while a provider asks for patience. It is given up as soon as its node has
//! changed, and what is right by then is decided anew.
//!
//! A stray is a route that no node has at the provider that lists it: a blackhole without a target, or a leftover of an
//! instance without a node, or of a node that has its routes elsewhere. It is inside a cluster CIDR, so upstream removes it,
//! and so do we. The provider is given id and target, and does not remove a route that has changed.

use std::{slice, sync::Arc, time::Duration};

use ccm_state::RouteListing;
use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use super::{
    Cloud, Controller, RouteKey, STRAYS_AGAIN,
    condition::{self, Reach},
    decide::{Plan, RouteSteps, decide},
    observe::{Run, is_same},
};
use ccm_cloud::{CloudError, EnsureRoute, EnsuredRoute, ErrorReason, InProgress, Route, RouteState};
use ccm_kube::{node::Node, queue::Outcome};
use ccm_reconcile::{Report, Retry, SLOW_RETRY, measured, node_instance, pass_on, result};

const FAILED_TO_CREATE: &str = "FailedToCreateRoute";
const FAILED_TO_DELETE: &str = "FailedToDeleteRoute";

/// Delay that lets the cache catch up with a newer live read.
const CACHE_IS_BEHIND: Duration = Duration::from_secs(1);

impl Controller {
    /// Does everything required for a node.
    pub(super) async fn look_at_node(&self, name: &str) -> Outcome {
        let (parts, reports) = (&self.shell.parts, &self.shell.reports);
        let subject = RouteKey::Node(name.to_owned());
        let owner = |node: &Arc<Node>| self.owner(node);
        if let Some(cloud) = parts.nodes.get(name).as_ref().and_then(owner) {
            node_instance::known_to(&parts.nodes, slice::from_ref(&cloud.provider)).await;
        }
        let run = self.runs.begin(name, &parts.nodes);
        let Some((node, cloud)) = run.node.as_ref().and_then(|node| Some((node, owner(node)?))) else {
            return reports.clear(&subject);
        };
        let about = Some((&**node).into());
        let learnt = cloud.learnt();
        if learnt == RouteListing::NotYet {
            let why = format!("the routes of provider {:?} are not listed yet", cloud.name());
            // The first list requeues every node.
            let waits =
                (!node.pod_cidrs.is_empty()).then(|| Report::waiting("RoutesNotListed", why, Retry::Wait));
            return reports.set(&subject, about, waits.into_iter().collect());
        }
        let mut plan = decide(&self.facts(cloud, node));
        let mut said = std::mem::take(&mut plan.reports);
        let before = said.len();
        let reaches = self.carry_out(cloud, &run, &plan, &mut said).await;
        let outcome = match &said[before..] {
            _ if plan.is_idle() => "noop",
            said if said.iter().any(|report| report.error.is_some()) => "error",
            _ => "changed",
        };
        self.metrics.synced("node_change", outcome);
        let reaches: Vec<Reach> = reaches.into_iter().chain(plan.unreached).collect();
        if let Some(wanted) = condition::wanted(node, plan.concerned, &reaches, learnt == RouteListing::Whole)
        {
            said.extend(self.show(node, &wanted).await);
        }
        reports.set(&subject, about, said)
    }

    /// Returns the reach of each lane of the plan.
    async fn carry_out(
        &self,
        cloud: &Cloud,
        run: &Run<'_>,
        plan: &Plan,
        said: &mut Vec<Report>,
    ) -> Vec<Reach> {
        let mut may_remove = false;
        if plan.removals().next().is_some() {
            match self.may_remove(cloud, run).await {
                Ok(()) => may_remove = true,
                Err(report) => said.push(report),
            }
        }
        let stale = plan.stale.iter().filter(|_| may_remove);
        let (lanes, removed) = tokio::join!(
            join_all(plan.lanes.iter().map(|lane| self.work(cloud, run, lane, may_remove))),
            join_all(stale.map(|route| self.remove(cloud, run, route))),
        );
        said.extend(removed.into_iter().flatten());
        let reach = |(reach, mut reports)| {
            said.append(&mut reports);
            reach
        };
        lanes.into_iter().map(reach).collect()
    }

    /// Removes the routes beside the right one first, then ensures the right one.
    async fn work(
        &self,
        cloud: &Cloud,
        run: &Run<'_>,
        lane: &RouteSteps,
        may_remove: bool,
    ) -> (Reach, Vec<Report>) {
        let mut said = Vec::new();
        for route in lane.remove.iter().filter(|_| may_remove) {
            said.extend(self.remove(cloud, run, route).await);
        }
        let Some(node) = run.node.as_ref().filter(|_| lane.ensure) else { return (Reach::Stands, said) };
        let (reach, report) = self.ensure(cloud, node, lane, &run.outdated).await;
        said.extend(report);
        (reach, said)
    }

    /// Whether a live read shows the node as it was when the removals were decided, and the provider is healthy.
    async fn may_remove(&self, cloud: &Cloud, run: &Run<'_>) -> Result<(), Report> {
        if run.name.is_empty() {
            return Ok(());
        }
        let live = self.shell.live::<Node>(&run.name, &self.shell.parts.nodes.keep()).await;
        let live = live.map_err(|error| {
            let why =
                format!("no route is removed before the node is read: {:#}", anyhow::Error::from(error));
            Report::waiting("NodeNotRead", why, Retry::Backoff)
        })?;
        if !is_same(run.node.as_ref(), live.as_ref()) {
            let why = "no route is removed before the host has seen the node's last change";
            return Err(Report::waiting("CacheIsBehind", why, Retry::After(CACHE_IS_BEHIND)));
        }
        if !cloud.is_trusted() {
            let why = format!("no route is removed: provider {:?} is unhealthy", cloud.name());
            // The node is requeued when the provider is healthy again.
            return Err(Report::waiting("ProviderFrozen", why, Retry::Wait));
        }
        Ok(())
    }

    /// Makes the destination of a lane lead to the node. Returns what is still in the way.
    async fn ensure(
        &self,
        cloud: &Cloud,
        node: &Arc<Node>,
        lane: &RouteSteps,
        outdated: &CancellationToken,
    ) -> (Reach, Option<Report>) {
        // A route that leads to the node already keeps doing so, whether the change succeeds or not.
        let not_done = if lane.leads { Reach::Unknown } else { Reach::Missing };
        let destination = lane.destination;
        // Long after the look at the node, perhaps: what was removed first may have waited for its turn.
        node_instance::known_to(&self.shell.parts.nodes, slice::from_ref(&cloud.provider)).await;
        let call = cloud.provider.ensure_route(EnsureRoute { destination, node: Arc::clone(node) });
        let done = |ensured: &EnsuredRoute| result(&ensured.in_progress);
        let made = measured(&self.metrics.operations, &*cloud.provider, "ensure", call, done);
        let ensured = match cloud.unless(outdated, made).await {
            None => return (Reach::Unknown, None),
            Some(Ok(ensured)) => ensured,
            Some(Err(error)) => {
                let what = format!("no route {} to {destination} for node {}", node.uid, node.name);
                return (not_done, Some(failed("RouteNotMade", FAILED_TO_CREATE, &what, &error)));
            }
        };
        pass_on(&self.shell.recorder, &**node, &ensured.events);
        match (ensured.in_progress, ensured.route) {
            (Some(progress), _) => {
                (not_done, Some(in_progress(&progress, format!("making the route to {destination}"))))
            }
            (None, Some(route)) => self.stands(cloud, node, route),
            (None, None) => (not_done, None),
        }
    }

    fn stands(&self, cloud: &Cloud, node: &Node, route: Route) -> (Reach, Option<Report>) {
        let (destination, leads) = (route.destination, route.state != RouteState::Blackhole);
        self.change(cloud, |table| table.ensured(route));
        if self.claims.lock().holder(&destination) != Some(node.name.as_str()) {
            // Another node became the holder meanwhile, and it is unknown which of the two calls came last.
            cloud.doubted.notify_one();
        }
        if leads {
            tracing::info!(node = node.name, %destination, "the route stands");
            return (Reach::Stands, None);
        }
        let what = format!(
            "the route to {destination} exists, but the cloud reports that its target, node {}, is unreachable",
            node.name
        );
        let report = Report::blocked("TargetUnreachable", what, Retry::After(SLOW_RETRY));
        (Reach::Missing, Some(report.warning(FAILED_TO_CREATE)))
    }

    /// Removes a route; the holder of its destination is looked at again, unless that is the run's own node. Returns what is still in
    /// the way.
    async fn remove(&self, cloud: &Cloud, run: &Run<'_>, route: &Route) -> Option<Report> {
        let call = cloud.provider.delete_route(route.clone());
        let removed = measured(&self.metrics.operations, &*cloud.provider, "delete", call, result);
        match cloud.unless(&run.outdated, removed).await? {
            Ok(Some(progress)) => {
                return Some(in_progress(&progress, format!("removing the route to {}", route.destination)));
            }
            Ok(None) => self.is_removed(cloud, run.node.as_ref(), route),
            Err(error) if error.is(ErrorReason::RouteChanged) => {
                tracing::info!(route = route.id, destination = %route.destination, "changed in the meantime, listing again");
                cloud.doubted.notify_one();
            }
            Err(error) => {
                let what = format!("the route {} to {} is not removed", route.id, route.destination);
                return Some(failed("RouteNotRemoved", FAILED_TO_DELETE, &what, &error));
            }
        }
        None
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
        let reports = &self.shell.reports;
        let subject = RouteKey::Stray { provider: provider.to_owned(), id: id.to_owned() };
        let Some(cloud) = self.cloud(provider) else { return reports.clear(&subject) };
        let Ok(_place) = cloud.strays_at_once.try_acquire() else { return Outcome::RetryAfter(STRAYS_AGAIN) };
        let route = cloud.table.lock().get(id).cloned();
        let name = route.as_ref().and_then(|route| route.target.as_ref()).map(|target| target.name.clone());
        let name = name.unwrap_or_default();
        let run = self.runs.begin(&name, &self.shell.parts.nodes);
        // It is requeued when the provider is healthy again.
        let route = route.filter(|route| self.is_stray(cloud, route) && cloud.is_trusted());
        let Some(route) = route else { return reports.clear(&subject) };
        let said = match self.may_remove(cloud, &run).await {
            Ok(()) => self.remove(cloud, &run, &route).await,
            Err(report) => Some(report),
        };
        if let Some(node) = run.node.as_ref().filter(|_| said.is_none()) {
            // Its own route may have waited for this.
            self.queue_node(node.name.clone());
        }
        reports.set(&subject, run.node.as_deref().map(Into::into), said.into_iter().collect())
    }
}

impl Cloud {
    /// The outcome of a call, unless what it was decided on is outdated first. It may have begun by then, so what it has
    /// done is asked.
    async fn unless<T>(&self, outdated: &CancellationToken, call: impl Future<Output = T>) -> Option<T> {
        let outcome = outdated.run_until_cancelled(call).await;
        if outcome.is_none() {
            self.doubted.notify_one();
        }
        outcome
    }
}

/// A call failed; `what` did not happen. Errors that another leader or a moment's patience resolves are not worth an
/// Event to the node's owner.
fn failed(reason: &'static str, event: &'static str, what: &str, error: &CloudError) -> Report {
    use ErrorReason as R;
    let report = Report::failed(reason, what, error);
    match error.reason {
        Some(R::StaleLeader | R::ConcurrentOperation) => report,
        _ => report.warning(event),
    }
}

fn in_progress(progress: &InProgress, what: String) -> Report {
    let why = format!("the provider is {what}");
    Report::waiting("InProgress", why, Retry::After(progress.retry_after))
}
