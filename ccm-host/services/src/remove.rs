//! Removes one balancer that nothing wants where it is. Even one that is reported absent is asked to be deleted, for as
//! long as the finalizer of its Service is there.
//!
//! In: the row's key. Out: calls to its provider, Events, and a row that says that nothing is left; the Service is then
//! looked at again, which frees it. Each balancer has a key of its own in the queue, so that a provider that is away, hangs
//! or refuses holds up no other one.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Controller, RunKey,
    events::{DELETED, DELETING, delete_failed, not_deleted, not_synced, sync_failed, unwritten},
    fate::{Fate, Why, is_proven},
    observe::standing,
    row::{Attempt, End, Goal, Known, Row, RowKey, Status},
    run::rank,
    wall_micros,
};
use ccm_cloud::{Accepted, CloudError, DeleteLoadBalancer, Effects, ErrorReason, Provider, ProviderStatus};
use ccm_kube::{events::Regarding, patch::WriteError, queue::Outcome, service::Service};
use ccm_reconcile::{Rank, Report, Retry, pass_on};

/// The wanted state announced for a removal.
const GONE: &str = "";

/// Delay before the next look if the cache lacks a Service that still exists.
const CACHE_IS_BEHIND: Duration = Duration::from_secs(1);

impl Controller {
    pub(super) async fn remove(&self, at: &RowKey) -> Outcome {
        self.synced().await;
        let provider = self.shell.parts.providers.by_name(&at.provider);
        if let Some(provider) = provider {
            // What it is told of the Service may decide where it looks for the balancer.
            self.kept(provider.as_ref()).await;
        }
        let Some(row) = self.rows.get(at) else {
            self.is_well(&RunKey::Balancer(at.clone()));
            return Outcome::Done;
        };
        match (self.look(&row.key).fate_of(at), provider) {
            (Fate::Keep, _) => {
                self.is_well(&RunKey::Balancer(at.clone()));
                Outcome::Done
            }
            (Fate::Drop, _) | (Fate::Remove(_), None) => {
                self.is_well(&RunKey::Balancer(at.clone()));
                self.rows.remove(at);
                Outcome::Done
            }
            (Fate::Remove(why), Some(provider)) => self.remove_at(provider.as_ref(), &row, why).await,
        }
    }

    async fn remove_at(&self, provider: &dyn Provider, row: &Arc<Row>, why: Why) -> Outcome {
        let key = RunKey::Balancer(row.at.clone());
        match standing(provider) {
            ProviderStatus::Serving => {}
            // Its return requeues everything.
            ProviderStatus::Disconnected(reason) => {
                self.waits(row, why, Report::waiting("WaitsForProvider", reason, Retry::Wait));
                return Outcome::Parked;
            }
            ProviderStatus::Frozen(reason) => {
                let held = format!("the deletion is held back: {reason}");
                let report =
                    if why.is_of_service() { sync_failed(held, Retry::Wait) } else { delete_failed(held) };
                self.say_of(row, report);
                return Outcome::Done;
            }
        }
        let tried = row.tried.get(&Goal::Gone);
        if let Some(until) = tried.and_then(|attempt| attempt.until).filter(|until| *until > Instant::now()) {
            self.shell.slots.hold(&key);
            return Outcome::RetryAfter(until.saturating_duration_since(Instant::now()));
        }
        let rank = if why.is_tidying() { Rank::Tidying } else { rank(tried, GONE) };
        let Some(slot) = self.slot(provider, &key, rank) else {
            let turn = "its load balancer waits for its turn to be deleted";
            self.waits(row, why, Report::waiting("WaitsForTurn", turn, Retry::Wait));
            return Outcome::Parked;
        };
        if why.needs_proof() {
            match (self.live(&row.key).await, why) {
                (Ok(Some(live)), Why::Vanished) if *live.uid == *row.at.uid => {
                    return Outcome::RetryAfter(CACHE_IS_BEHIND);
                }
                (Ok(Some(live)), _) if *live.uid == *row.at.uid => return Outcome::Done,
                (Ok(_), _) => {}
                (Err(WriteError::NotLeading), _) => return Outcome::Done,
                (Err(error), _) => return Outcome::retry(error),
            }
        }
        let Some(busy) = self.rows.begin(&row.at, true) else { return Outcome::Parked };
        let begun = Instant::now();
        let outcome = self.delete(provider, row, why).await;
        drop(busy);
        // Whatever became of it: its Service waited for the call, and may want a balancer again.
        self.shell.queue.add(RunKey::Service(row.key.clone()));
        if let Outcome::RetryAfter(pause) = outcome
            && pause <= begun.elapsed()
            && self.rows.get(&row.at).is_some_and(|row| row.keeps_place(Goal::Gone))
        {
            slot.hold(&key);
        }
        outcome
    }

    async fn delete(&self, provider: &dyn Provider, row: &Row, why: Why) -> Outcome {
        let Row { at, key, .. } = row;
        // A balancer known to be absent is removed without Events.
        let is_told = !matches!(row.known, Known::Absent);
        let regarding = || Regarding::service(key, &at.uid);
        if is_told && !why.is_tidying() && row.announced.as_deref() != Some(GONE) {
            self.tell(regarding(), DELETING);
        }
        let cached = self.shell.parts.services.get(key).filter(|service| *service.uid == *at.uid);
        let (revision, last_known) = self.rows.change(at, key, |row| {
            // The record goes with the status, before the Service does.
            row.is_proven |= cached.as_deref().is_some_and(|service| is_proven(row, service));
            row.announced = Some(GONE.to_owned());
            row.is_leaving();
            row.last = last_known(row.last.take(), cached);
            (row.revision(None, wall_micros()), row.last.clone())
        });
        let wanted = DeleteLoadBalancer {
            key: key.clone(),
            uid: at.uid.to_string(),
            last_known,
            revision,
            adopt: self.shell.parts.settings.services.adopt_load_balancers && !why.is_tidying(),
        };
        let call = provider.delete_load_balancer(wanted);
        let answer = self.called(at, provider, "delete", call, |deleted| &deleted.in_progress);
        match answer.await {
            Ok(Accepted { in_progress, effects, .. }) => {
                pass_on(&self.shell.recorder, regarding(), &effects.events);
                let retry = in_progress.as_ref().map_or(Retry::Wait, |one| Retry::After(one.retry_after));
                match self.leaves(row, effects, retry).await {
                    Ok(()) => {}
                    // The call is repeated, and says it again.
                    Err(error) => {
                        let (outcome, report) = unwritten("annotations and conditions", &error);
                        report.into_iter().for_each(|report| self.say_of(row, report));
                        let wait = self.shell.queue.backoff(&RunKey::Balancer(at.clone()));
                        self.rows.update(at, |row| row.failed(Goal::Gone, attempt(End::Failed, wait)));
                        return outcome;
                    }
                }
                match in_progress {
                    Some(in_progress) => {
                        let wait = in_progress.retry_after;
                        let deleting = "the provider is deleting its load balancer";
                        self.waits(row, why, Report::waiting("InProgress", deleting, retry));
                        self.rows.update(at, |row| row.failed(Goal::Gone, attempt(End::InProgress, wait)));
                        Outcome::RetryAfter(wait)
                    }
                    None => self.is_removed(row, why, is_told),
                }
            }
            Err(error) if error.is(ErrorReason::ImplementedElsewhere) => {
                tracing::warn!(service = %key, provider = provider.name(),
                    "the provider does not serve this load balancer; treated as removed");
                self.is_removed(row, why, is_told)
            }
            Err(error) => self.is_not_removed(row, why, &error),
        }
    }

    /// Writes what a deletion leaves on its Service, if that is still there.
    async fn leaves(&self, row: &Row, effects: Effects, retry: Retry) -> Result<(), WriteError> {
        let mut status = Status::default();
        status.wants(effects);
        let service = self.shell.parts.services.get(&row.key).filter(|service| *service.uid == *row.at.uid);
        let Some(service) = service.filter(|_| status != Status::default()) else { return Ok(()) };
        match self.publish(&service, &status, None).await {
            Ok(refused) => {
                // Nothing that is refused may keep the Service from going.
                refused.why.into_iter().for_each(|why| self.say_of(row, sync_failed(why, retry)));
                Ok(())
            }
            Err(WriteError::NotFound | WriteError::Gone) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn is_removed(&self, row: &Row, why: Why, is_told: bool) -> Outcome {
        if is_told {
            self.tell(Regarding::service(&row.key, &row.at.uid), DELETED);
        }
        // A Service has yet to be freed, unless it went elsewhere during the call.
        let is_awaited = why.is_of_service() && self.look(&row.key).fate_of(&row.at) != Fate::Drop;
        self.rows.update(&row.at, |row| if is_awaited { row.is_gone() } else { row.goes = true });
        self.is_well(&RunKey::Balancer(row.at.clone()));
        Outcome::Done
    }

    fn is_not_removed(&self, row: &Row, why: Why, error: &CloudError) -> Outcome {
        let key = RunKey::Balancer(row.at.clone());
        // A removal has no change of the Service to wait for, so it is always retried; tidying, at the next sweep.
        let retry = if why.is_tidying() { Retry::Wait } else { Retry::without_sweep(error) };
        let until_sweep = self.shell.parts.settings.services.load_balancer_resync_period / 2;
        let wait = retry.delay(self.shell.queue.backoff(&key)).unwrap_or(until_sweep);
        // Like upstream, distinguishes a failed cleanup from that of a Service that is gone.
        let report = if why.is_of_service() { not_synced } else { not_deleted };
        self.say_of(row, report(error, retry));
        tracing::debug!(service = %row.key, provider = %row.at.provider, %error, ?wait, "a provider failed");
        let end = if error.is_silence() { End::Unknown } else { End::Failed };
        self.rows.update(&row.at, |row| {
            if error.is(ErrorReason::StaleRevision) {
                row.is_stale();
            }
            row.failed(Goal::Gone, attempt(end, wait));
        });
        retry.outcome(error)
    }

    /// Reports what the removal waits for.
    fn waits(&self, row: &Row, why: Why, report: Report) {
        if !why.is_tidying() {
            self.say_of(row, report);
        }
    }

    fn say_of(&self, row: &Row, report: Report) {
        self.say(&RunKey::Balancer(row.at.clone()), Regarding::service(&row.key, &row.at.uid), report);
    }
}

/// Not to be repeated before `wait` is over.
fn attempt(end: End, wait: Duration) -> Attempt {
    let at = Instant::now();
    Attempt { digest: GONE.to_owned(), of_backends: false, end, at, since: at, until: Some(at + wait) }
}

/// What is remembered of a Service may be from before its provider said which annotations it wants to know.
fn last_known(last: Option<Arc<Service>>, now: Option<Arc<Service>>) -> Option<Arc<Service>> {
    let (Some(last), Some(now)) = (&last, &now) else { return last.or(now) };
    let is_lacking = |(key, _): &(&str, &str)| !last.annotations.contains_key(key);
    if !now.annotations.iter().any(|one| is_lacking(&one)) {
        return Some(Arc::clone(last));
    }
    let annotations = last.annotations.iter().chain(now.annotations.iter().filter(is_lacking)).collect();
    Some(Arc::new(Service { annotations, ..(**last).clone() }))
}
