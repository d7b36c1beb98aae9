//! Lists all routes of a provider: at the start, at each new connection, when the table is in doubt, and periodically
//! to find changes made by others.
//!
//! In: the provider's list. Out: the table, and keys in the queue where something differs. Nothing is removed here,
//! and an incomplete list proves nothing about what it lacks.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{
    BACKOFF, Cloud, Controller,
    subject::Subject,
    table::{Holder, Learnt, Table},
};
use crate::{
    cloud::{CloudError, ErrorReason, Listed, ProviderStatus, Route},
    reconcile::{Retry, SLOW_RETRY, askable, follow_status, listed, measured, resync},
};

/// Minimum time between lists, whatever triggers them.
const DISTANCE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Every node, and routes that no node explains.
    Everything,
    /// Only what differs from the desired state.
    Differences,
    /// Only where routes would be removed.
    Removals,
}

impl Controller {
    /// Lists whenever there is a reason to, for as long as it is polled.
    pub(super) async fn sweep_for_ever(&self, cloud: &Cloud) {
        let mut sweeps = cloud.provider.sweeps();
        let mut failures = 0;
        loop {
            askable(cloud.provider.as_ref()).await;
            sweeps.borrow_and_update();
            let begun = Instant::now();
            let pause = match self.sweep(cloud).await {
                Ok(()) => {
                    failures = 0;
                    resync(self.parts.settings.routes.route_reconciliation_period)
                }
                Err(error) => {
                    tracing::warn!(provider = cloud.name(), %error, "the routes could not be listed");
                    failures += 1;
                    pause_after(&error, failures)
                }
            };
            let next = Instant::now() + pause;
            tokio::select! {
                () = sleep_until(next) => {}
                Ok(()) = sweeps.changed() => sleep_until(next.min(begun + DISTANCE)).await,
                () = cloud.doubted.notified() => sleep_until(next.min(begun + DISTANCE)).await,
            }
        }
    }

    async fn sweep(&self, cloud: &Cloud) -> Result<(), CloudError> {
        if !cloud.serves_routes() {
            return Ok(());
        }
        let begun = cloud.table.lock().mark();
        let list = self.list(cloud).await?;
        for (location, error) in &list.unreachable {
            tracing::warn!(provider = cloud.name(), location, %error, "could not list routes");
        }
        for sentence in &list.rejected {
            tracing::warn!(provider = cloud.name(), "a listed route is wrong: {sentence}");
        }
        let is_first = cloud.learnt().is_none();
        let learnt = if list.complete { Learnt::Whole } else { Learnt::InPart };
        self.change(cloud, |table| {
            table.learn(list.items, learnt, begun, |route| self.is_as_wanted(route));
        });
        if is_first {
            tracing::info!(provider = cloud.name(), complete = list.complete, "the routes are known");
        }
        self.look(cloud, if is_first { Look::Everything } else { Look::Differences });
        Ok(())
    }

    /// Changes what is known of the cloud's routes, and shows how many these are.
    pub(super) fn change(&self, cloud: &Cloud, change: impl FnOnce(&mut Table)) {
        let mut table = cloud.table.lock();
        change(&mut table);
        self.metrics.known(cloud.name(), table.all().len());
    }

    async fn list(&self, cloud: &Cloud) -> Result<Listed<Route>, CloudError> {
        self.metrics.sync_begins();
        let call = cloud.provider.list_routes(&self.parts.settings.cidrs.cluster);
        measured(&self.metrics.operations, &*cloud.provider, "list", call, listed).await
    }

    /// Requeues nodes and routes, except (unless for everything) those already waiting for a retry.
    fn look(&self, cloud: &Cloud, look: Look) {
        let add = |subject: Subject| {
            if look == Look::Everything || !self.waiting.contains(&subject) {
                self.queue.add(subject);
            }
        };
        for node in self.parts.nodes.list() {
            let deserves_it = match look {
                Look::Everything => true,
                Look::Differences => self.is_due(cloud, &node),
                Look::Removals => self.has_removals(cloud, &node),
            };
            if deserves_it {
                add(Subject::Node(node.name.clone()));
            }
        }
        let routes: Vec<_> = cloud.table.lock().all().cloned().collect();
        for route in routes {
            match Holder::of(&route) {
                Holder::Node(name) if self.parts.nodes.get(&name).is_none() => {
                    if self.is_removable_at_all(&route) {
                        add(Subject::Node(name));
                    }
                }
                Holder::Node(_) => {}
                Holder::Instance(_) | Holder::Nobody => {
                    if self.is_stray(&route) {
                        add(Subject::Stray { provider: cloud.name().to_owned(), id: route.id.clone() });
                    }
                }
            }
        }
    }

    /// Resumes removals when the provider thaws, for as long as it is polled. Everything else keeps its backoff,
    /// however often the provider comes and goes.
    pub(super) async fn follow_status(&self, cloud: &Cloud) {
        follow_status(cloud.provider.as_ref(), |_, now| {
            // Even if it is as before: a removal may have met a freeze that ended before this was polled.
            if *now == ProviderStatus::Serving {
                self.look(cloud, Look::Removals);
            }
        })
        .await;
    }
}

/// The pause after a failed list.
fn pause_after(error: &CloudError, failures: u32) -> Duration {
    let backoff = BACKOFF.delay(failures.saturating_sub(1));
    match error.reason {
        Some(ErrorReason::MethodNotSupported) => SLOW_RETRY,
        _ => Retry::of(error).delay(backoff).unwrap_or(backoff),
    }
}
