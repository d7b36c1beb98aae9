//! Lists all routes of a provider: at the start, at each new connection, when the table is in doubt, and periodically
//! to find changes made by others.
//!
//! In: the provider's list. Out: the table, and keys in the queue where something differs. Nothing is removed here,
//! and an incomplete list proves nothing about what it lacks.

use std::time::Duration;

use ccm_state::RouteListing;
use tokio::time::{Instant, sleep_until};

use super::{Cloud, Controller, RouteKey, observe::Due, table::Table};
use ccm_base::metric::{gauge, of_provider};
use ccm_cloud::{CloudError, ErrorReason, Family, Listed, ProviderStatus, Route};
use ccm_reconcile::{
    Reconciler as _, Retry, SLOW_RETRY, Sweeps, askable, follow_status, listed, measured, resync,
};

impl Controller {
    /// Lists whenever there is a reason to, for as long as it is polled.
    pub(super) async fn sweep_for_ever(&self, cloud: &Cloud) {
        let period = self.shell.parts.settings.routes.route_reconciliation_period;
        let mut sweeps = Sweeps::of(cloud.provider.as_ref());
        let mut failures = 0;
        loop {
            askable(cloud.provider.as_ref()).await;
            sweeps.made(period);
            let pause = match self.sweep(cloud).await {
                Ok(()) => {
                    failures = 0;
                    resync(period)
                }
                Err(error) => {
                    tracing::warn!(provider = cloud.name(), %error, "the routes could not be listed");
                    failures += 1;
                    pause_after(&error, failures)
                }
            };
            let next = Instant::now() + pause;
            loop {
                tokio::select! {
                    () = sleep_until(next) => break,
                    () = sweeps.due() => break,
                    () = cloud.doubted.notified() => sweeps.wish(),
                }
            }
        }
    }

    async fn sweep(&self, cloud: &Cloud) -> Result<(), CloudError> {
        if !cloud.serves_routes() {
            return Ok(());
        }
        let begun = cloud.table.lock().mark();
        let list = self.list(cloud).await.inspect_err(|_| self.metrics.synced("periodic", "error"))?;
        for (location, error) in &list.unreachable {
            tracing::warn!(provider = cloud.name(), location, %error, "could not list routes");
        }
        if let Some(first) = list.rejected.first() {
            let wrong = list.rejected.len();
            tracing::warn!(provider = cloud.name(), wrong, "listed routes are wrong, for example: {first}");
        }
        let is_first = cloud.learnt() == RouteListing::NotYet;
        let learnt = if list.complete { RouteListing::Whole } else { RouteListing::InPart };
        self.change(cloud, |table| {
            table.learn(list.items, learnt, begun, |route| self.is_as_wanted(route));
        });
        if is_first {
            tracing::info!(provider = cloud.name(), complete = list.complete, "the routes are known");
        }
        let outcome = if self.look(cloud) { "changed" } else { "noop" };
        self.metrics.synced("periodic", outcome);
        Ok(())
    }

    /// Changes what is known of the cloud's routes, and shows how many these are.
    pub(super) fn change(&self, cloud: &Cloud, change: impl FnOnce(&mut Table)) {
        let mut table = cloud.table.lock();
        change(&mut table);
        self.metrics.known.get_or_create(&of_provider(cloud.name(), [])).set(gauge(table.all().len()));
    }

    async fn list(&self, cloud: &Cloud) -> Result<Listed<Route>, CloudError> {
        let call = cloud.provider.list_routes(&self.shell.parts.settings.cidrs.cluster);
        measured(&self.metrics.operations, &*cloud.provider, "list", call, listed).await
    }

    /// Requeues nodes and routes for which there is something to do, except those already waiting for a retry. Returns whether
    /// routes differ from what is wanted.
    fn look(&self, cloud: &Cloud) -> bool {
        if cloud.learnt() == RouteListing::NotYet {
            return false;
        }
        let mut differ = false;
        let queue = &self.shell.queue;
        for node in self.shell.parts.nodes.list() {
            let due = self.due(cloud, &node);
            if due != Due::Nothing {
                differ |= queue.add_unless_delayed(RouteKey::Node(node.name.clone())) && due == Due::Routes;
            }
        }
        let routes: Vec<_> = cloud.table.lock().all().cloned().collect();
        for route in routes.iter().filter(|route| self.is_stray(cloud, route)) {
            differ |= queue.add_unless_delayed(cloud.key_of(route));
        }
        differ
    }

    /// Resumes removals when the provider thaws, and work on nodes whose owner was open until it introduced itself, for as
    /// long as it is polled. Everything else keeps its backoff, however often the provider comes and goes.
    pub(super) async fn follow_status(&self, cloud: &Cloud) {
        follow_status(cloud.provider.as_ref(), Family::Routes, |_, now| {
            // Even if it is as before: a removal may have met a freeze that ended before this was polled.
            if *now == ProviderStatus::Serving {
                self.clouds.iter().for_each(|cloud| {
                    self.look(cloud);
                });
            }
        })
        .await;
    }
}

/// The pause after a failed list.
fn pause_after(error: &CloudError, failures: u32) -> Duration {
    let backoff = Controller::BACKOFF.delay(failures.saturating_sub(1));
    match error.reason {
        Some(ErrorReason::MethodNotSupported) => SLOW_RETRY,
        _ => Retry::of(error).delay(backoff).unwrap_or(backoff),
    }
}
