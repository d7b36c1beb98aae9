//! Runs a Service: looks, plans and acts until nothing more can be done right now.
//!
//! In: a key. Out: calls that create or change its balancer, writes to the Service, Events, and when to come back. A run
//! waits for nothing but its own calls. The order of writes leaves no window: the finalizer is added before the first
//! call, and removed after the last. [`ccm_reconcile`] knows the retry that the contract prescribes for an error; the
//! row keeps it, so that nothing repeats a call early.

use std::{
    ops::ControlFlow::{self, Break, Continue},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use tokio::time::Instant;

use super::{
    Controller, RunKey,
    events::{
        ENSURED, ENSURING, NOT_UPDATED, UPDATED, no_nodes, not_synced, not_updated, sync_failed, unwritten,
    },
    fate::Fate,
    observe::{Seen, Subject, serves_balancers},
    plan::{Ask, Others, Plan, Until, Verb, Wait, plan},
    publish::Refused,
    record::Record,
    row::{Attempt, End, Goal, Known, Row, RowKey, Status},
    service::{has_finalizer, is_load_balancer},
    sweep::is_ours,
    wall_micros,
};
use ccm_cloud::{
    Accepted, BackendSet, CloudError, EnsureLoadBalancer, Ensured, ErrorReason, InProgress,
    LoadBalancerState, Provider, UpdateLoadBalancer, covers_backends,
};
use ccm_kube::{
    patch::WriteError,
    queue::Outcome,
    service::{ObjectKey, Service},
};
use ccm_reconcile::{Rank, Report, Retry, Slot, pass_on};
use ccm_state::Standing;

/// Delay before asking again, if the provider left the balancer unfinished without saying when to.
const UNFINISHED: Duration = Duration::from_secs(5);

/// The remedy for [`ErrorReason::AdoptionRefused`].
const ADOPT_FLAG: &str = "--adopt-load-balancers";

/// How a step ended: to look and plan again at once, or the run is over.
type Step = ControlFlow<Outcome>;

impl Controller {
    pub(super) async fn sync(&self, key: &ObjectKey) -> Outcome {
        loop {
            // Whatever comes next waits for its turn: others were in line before.
            let mut slot = None;
            self.synced().await;
            let seen = self.look(key);
            let subject = self.subject(&seen);
            if let (Some(Subject { view, .. }), Some(maker)) = (&subject, &seen.maker) {
                let waited = self.kept(maker.as_ref()).await;
                let now = self.shell.parts.services.get(key);
                if waited || !now.is_some_and(|now| Arc::ptr_eq(&now, &view.service)) {
                    // It may want to know more than was looked at.
                    continue;
                }
            }
            self.hand_over(&seen);
            let Some(mut subject) = subject else {
                if !seen.removes_any() {
                    self.is_well(&RunKey::Service(key.clone()));
                }
                return Outcome::Done;
            };
            let mut next = plan(&subject.view);
            if let (Plan::Ask(ask @ Ask { verb: Verb::Ensure, .. }), Some(maker)) = (&next, &seen.maker) {
                let row = subject.view.row.as_deref();
                let rank = match rank(row.and_then(|row| row.tried.get(&ask.goal)), &ask.digest) {
                    // New Services and edits come first.
                    Rank::First if row.is_some_and(|row| row.may_be(&ask.digest)) => Rank::Retry,
                    rank => rank,
                };
                let run = RunKey::Service(key.clone());
                if rank == Rank::First
                    && self.shell.reports.of(&run).iter().any(|report| report.standing == Standing::Blocked)
                {
                    // What is wanted now has not been tried.
                    self.is_well(&run);
                }
                slot = self.slot(maker.as_ref(), &run, rank);
                if slot.is_none() {
                    subject.view.is_full = true;
                    next = plan(&subject.view);
                }
            }
            if let Break(outcome) = self.carry_out(next, &subject, &mut slot).await {
                return outcome;
            }
        }
    }

    /// Queues the removals of what is not wanted, and forgets what is not there.
    fn hand_over(&self, seen: &Seen) {
        for (row, fate) in &seen.rows {
            let key = RunKey::Balancer(row.at.clone());
            // A removal that was taken back has nothing more to report.
            if matches!(fate, Fate::Remove(_)) || !self.shell.reports.of(&key).is_empty() {
                self.shell.queue.add(key);
            }
        }
        // What was there shows of what is still to be removed that nobody waits for it.
        let is_free =
            seen.service.as_deref().is_none_or(|service| !has_finalizer(service)) && !seen.removes_any();
        let is_moved = |row: &Row| {
            let recorded = seen.service.as_deref().and_then(Record::of);
            recorded.is_some_and(|record| *record.provider != *row.at.provider)
        };
        for (row, fate) in &seen.rows {
            let is_done = row.is_removed() && (is_free || is_moved(row));
            if *fate == Fate::Drop || is_done {
                self.rows.remove(&row.at);
            }
        }
    }

    async fn carry_out(
        &self,
        plan: Plan,
        subject: &Subject<'_>,
        slot: &mut Option<Slot<'_, RunKey>>,
    ) -> Step {
        let Subject { seen, view, .. } = subject;
        let service = &view.service;
        match plan {
            Plan::Ask(ask) => self.ask(subject, ask, slot).await,
            Plan::Rest => {
                self.is_well(&RunKey::Service(service.key.clone()));
                self.rests(subject);
                Break(Outcome::Done)
            }
            Plan::Leave => {
                self.is_well(&RunKey::Service(service.key.clone()));
                self.leave(seen);
                Break(Outcome::Done)
            }
            Plan::Publish => {
                self.write(subject).await?;
                if let Some(row) = &subject.view.row {
                    self.tell_ensured(subject, &row.at);
                }
                self.is_well(&RunKey::Service(service.key.clone()));
                self.rests(subject);
                Break(Outcome::Done)
            }
            Plan::Free { status } => self.free(subject, status).await,
            Plan::Search => {
                let suspects = self.suspects(service, &seen.own);
                for at in &suspects {
                    let known = self.known_at_first(&at.provider);
                    self.rows.change(at, &service.key, |row| {
                        row.last = Some(Arc::clone(service));
                        row.known = known;
                    });
                }
                let mut providers = self.shell.parts.providers.all().iter();
                if !suspects.is_empty() {
                    Continue(())
                } else if providers.any(|one| serves_balancers(one.as_ref())) {
                    self.free(subject, true).await
                } else {
                    // Nobody can say that there is none.
                    let why = "no provider of this host serves load balancers";
                    self.wait(subject, Wait::new(Until::Provider, why)).await
                }
            }
            Plan::AskOwner => self.ask_owner(service).await,
            Plan::Wait(wait) => self.wait(subject, wait).await,
        }
    }

    fn rests(&self, subject: &Subject<'_>) {
        if let Some(row) = &subject.view.row {
            self.rows.update(&row.at, |row| {
                row.node_sync = None;
                if !row.is_elsewhere() {
                    row.tried.remove(&Goal::Wanted);
                    row.tried.remove(&Goal::Upkeep);
                    row.announced = None;
                }
            });
        }
    }

    /// Forgets what the Service of another implementation left here.
    fn leave(&self, seen: &Seen) {
        for (row, _) in seen.rows.iter().filter(|(row, _)| row.orphan.is_none()) {
            self.rows.remove(&row.at);
        }
    }

    /// Publishes what is applied: a balancer that works is usable even while a change has to wait.
    async fn wait(&self, subject: &Subject<'_>, Wait { until, why }: Wait) -> Step {
        let service = &subject.view.service;
        tracing::debug!(service = %service.key, why, ?until, "waits");
        let row = subject.view.row.as_deref();
        let is_working = row.is_some_and(|row| row.applied().is_some());
        if (is_working || subject.status.ingress.as_ref().is_some_and(Vec::is_empty))
            && is_load_balancer(service)
            && !subject.view.published
            && !matches!(until, Until::Removal)
            && !matches!(subject.view.others, Others::MayBeAt(_))
        {
            self.write(subject).await?;
        }
        let key = RunKey::Service(service.key.clone());
        let waits = |reason, why| Some(Report::waiting(reason, why, Retry::Wait));
        let (report, outcome) = match until {
            Until::At(at) => {
                if row
                    .and_then(|row| row.tried.get(&Goal::Wanted))
                    .is_some_and(|one| one.end == End::InProgress)
                {
                    self.shell.slots.hold(&key);
                }
                let pause = at.saturating_duration_since(Instant::now());
                let report = Report::waiting("WaitsForRetry", why, Retry::After(pause));
                (Some(report), Outcome::RetryAfter(pause))
            }
            Until::Corrected => (Some(sync_failed(why, Retry::Wait)), Outcome::Done),
            Until::Change => (waits("WaitsForChange", why), Outcome::Done),
            Until::Provider => (waits("WaitsForProvider", why), Outcome::Parked),
            Until::Slot => (waits("WaitsForTurn", why), Outcome::Parked),
            Until::Removal => (self.of_former(subject, why), Outcome::Parked),
        };
        match report {
            // The removal reports it at this Service.
            None => self.is_well(&key),
            Some(report) => self.say(&key, &**service, report),
        }
        Break(outcome)
    }

    /// What to say of the removal of a former Service's balancer, which reports it at that one alone.
    fn of_former(&self, Subject { seen, view, .. }: &Subject<'_>, why: String) -> Option<Report> {
        let removed = seen.to_remove().map(|(at, _)| at);
        let mut former = removed.filter(|at| *at.uid != *view.service.uid).peekable();
        former.peek()?;
        let mut reports = former.flat_map(|at| self.shell.reports.of(&RunKey::Balancer(at.clone())));
        Some(match reports.find(|one| one.standing == Standing::Blocked) {
            Some(failed) => sync_failed(format!("{why}: {}", failed.words()), Retry::Wait),
            None => Report::waiting("WaitsForRemoval", why, Retry::Wait),
        })
    }

    /// Writes what is to be published. The run is over if it was not written.
    async fn write(&self, subject: &Subject<'_>) -> Step {
        let Subject { view, status, record, .. } = subject;
        if let Err(error) = self.set_finalizer(&view.service, true).await {
            return self.unwritten(&view.service, "finalizer", &error);
        }
        self.write_status(&view.service, view.row.as_deref(), status, record.as_ref()).await
    }

    async fn write_status(
        &self,
        service: &Arc<Service>,
        row: Option<&Row>,
        status: &Status,
        record: Option<&Record>,
    ) -> Step {
        match self.publish(service, status, record).await {
            Ok(Refused { why, may_pass }) => {
                let retry = if may_pass { Retry::Backoff } else { Retry::Wait };
                for why in &why {
                    self.warn(service, sync_failed(why, retry));
                }
                if let Some(why) = why.into_iter().next().filter(|_| may_pass) {
                    return Break(retry.outcome(why));
                }
                if let Some(row) = row {
                    self.rows.update(&row.at, |row| row.status.is_written(status));
                }
                Continue(())
            }
            Err(error) => self.unwritten(service, "status", &error),
        }
    }

    /// Nothing is left in the cloud: clears the status, then removes the finalizer.
    async fn free(&self, Subject { seen, view, .. }: &Subject<'_>, addresses: bool) -> Step {
        let service = &view.service;
        // Without its last finalizer the Service is gone, and has no status.
        let is_gone = service.is_deleting() && service.finalizers.len() <= 1;
        let freed = async {
            if !is_gone {
                // Status first: once the finalizer is gone, nothing would come back for it.
                self.clear(service, addresses).await.map_err(|error| ("status", error))?;
            }
            match self.set_finalizer(service, false).await {
                // The Service is gone, and its finalizer with it.
                Ok(()) | Err(WriteError::NotFound | WriteError::Gone) => Ok(()),
                Err(error) => Err(("finalizer", error)),
            }
        };
        match freed.await {
            Ok(()) => {
                self.is_well(&RunKey::Service(service.key.clone()));
                if !has_finalizer(service) && !seen.removes_any() {
                    seen.rows.iter().for_each(|(row, _)| self.rows.remove(&row.at));
                }
                Break(Outcome::Done)
            }
            Err((what, error)) => self.unwritten(service, what, &error),
        }
    }

    /// Handles another implementation's Service that is being deleted and has the finalizer: cleans it up only if one
    /// of our providers reports that the balancer is ours.
    async fn ask_owner(&self, service: &Arc<Service>) -> Step {
        let providers = self.shell.parts.providers.all().iter();
        let mut silent = None;
        for provider in providers.filter(|one| serves_balancers(one.as_ref())) {
            match provider.load_balancer(service).await {
                Ok(balancer) if is_ours(&balancer) => {
                    let at = RowKey::new(&service.uid, provider.name());
                    self.rows.change(&at, &service.key, |row| {
                        row.last = Some(Arc::clone(service));
                        row.known = Known::Asked { made_as: balancer.applied_digest };
                    });
                    return Continue(());
                }
                Ok(_) => {}
                Err(error) => silent = Some(error),
            }
        }
        if let Some(error) = silent {
            self.warn(service, not_synced(&error, Retry::Backoff));
            return Break(Outcome::retry(error));
        }
        self.is_well(&RunKey::Service(service.key.clone()));
        Break(Outcome::Done)
    }

    /// Asks the owner to create the balancer, to change it, or to give it other nodes.
    async fn ask(&self, subject: &Subject<'_>, ask: Ask, slot: &mut Option<Slot<'_, RunKey>>) -> Step {
        let Subject { seen, view, backends, .. } = subject;
        let (Some(provider), Some(backends)) = (seen.maker.as_deref(), backends) else {
            return Break(Outcome::Done);
        };
        let service = &view.service;
        let at = RowKey::new(&service.uid, provider.name());
        self.rows.change(&at, &service.key, |row| {
            row.last = Some(Arc::clone(service));
            row.orphan = None;
        });
        let makes = ask.verb == Verb::Ensure;
        let Some(_busy) = self.rows.begin(&at, makes) else { return Break(Outcome::Parked) };
        if let Some(why) = view.wanted.as_ref().and_then(|wanted| wanted.refusal.as_ref()) {
            self.warn(service, sync_failed(why, Retry::Wait));
        } else if ask.verb == Verb::Ensure {
            let key = RunKey::Service(service.key.clone());
            let asked = Report::waiting("Asked", "the provider is being asked", Retry::Backoff);
            self.say(&key, &**service, asked);
        }
        let call = OwnerCall { subject, ask: &ask, provider, backends, at: &at };
        let begun = Instant::now();
        let (step, attempt) = match ask.verb {
            Verb::Ensure => {
                if let Err(error) = self.guard(&call).await {
                    return self.unwritten(service, "finalizer", &error);
                }
                self.announce(&call);
                let answer = self.call_ensure(&call).await;
                self.ensured(&call, answer).await
            }
            Verb::Update => {
                let answer = self.call_update(&call).await;
                self.updated(&call, answer)
            }
        };
        // The work goes on for longer than the pause: it keeps its place.
        let keeps = attempt.is_some_and(|pause| pause <= begun.elapsed())
            && self.rows.get(&at).is_some_and(|row| row.keeps_place(ask.goal));
        if keeps && let Some(slot) = slot.take() {
            slot.hold(&RunKey::Service(service.key.clone()));
        }
        step
    }

    /// Ensures that the finalizer is present before the balancer is, and the record where several providers could have
    /// it. Where the balancer may be gone, a finalizer in the cache proves nothing: the cache may not have seen yet that
    /// the finalizer, or the Service, was removed with it.
    async fn guard(&self, call: &OwnerCall<'_>) -> Result<(), WriteError> {
        let service = &call.subject.view.service;
        let row = self.rows.get(call.at);
        let applied = row.as_deref().and_then(Row::applied);
        let is_certain = applied.is_some_and(|applied| !applied.doubt.service);
        let is_durable = call.provider.info().is_some_and(|info| info.durable_digest);
        // What is published and dead goes first: the next address may be minutes away.
        let dead = call.subject.status.ingress.clone().filter(Vec::is_empty);
        let changes_applied = !is_durable && call.ask.goal == Goal::Wanted && applied.is_some();
        if self.shell.parts.providers.all().len() > 1 || changes_applied || dead.is_some() {
            // As it will be while the call is under way.
            let mut begun = row.as_deref().cloned();
            let record = begun.as_mut().and_then(|row| {
                row.asked(service, &call.ask.digest, false);
                self.record_of(row)
            });
            let status = Status { ingress: dead, ..Status::default() };
            // Before the finalizer: one without a record is another manager's.
            self.publish(service, &status, record.as_ref()).await?;
            self.rows.update(call.at, |row| row.status.is_written(&status));
        }
        if is_certain || !has_finalizer(service) {
            self.set_finalizer(service, true).await
        } else {
            self.set_finalizer(&self.fresh(service).await?, true).await
        }
    }

    /// Emits the Event once per wanted state, however often it is tried.
    fn announce(&self, call: &OwnerCall<'_>) {
        let Ask { goal, digest, service, .. } = call.ask;
        let is_news = self.rows.update(call.at, |row| {
            let is_news = *goal == Goal::Wanted && row.announced.as_ref() != Some(digest);
            if is_news {
                row.announced = Some(digest.clone());
            }
            is_news
        });
        if is_news == Some(true) {
            self.tell(&**service, ENSURING);
        }
    }

    async fn call_ensure(&self, call: &OwnerCall<'_>) -> Result<Ensured, CloudError> {
        let Ask { service, digest, .. } = call.ask;
        let wanted = EnsureLoadBalancer {
            service: Arc::clone(service),
            backends: Arc::clone(call.backends),
            desired_digest: digest.clone(),
            revision: self.begins(call, false),
            adopt: self.shell.parts.settings.services.adopt_load_balancers,
        };
        let answer = call.provider.ensure_load_balancer(wanted).map(|answer| {
            answer.and_then(|mut ensured| {
                ensured.in_progress = what_is_left(&ensured)?;
                Ok(ensured)
            })
        });
        self.called(call.at, call.provider, "ensure", answer, |ensured| &ensured.in_progress).await
    }

    async fn call_update(&self, call: &OwnerCall<'_>) -> Result<Accepted, CloudError> {
        let Ask { service, digest, .. } = call.ask;
        let applied = call.subject.view.row.as_deref().and_then(Row::applied);
        let wanted = UpdateLoadBalancer {
            service: Arc::clone(service),
            backends: Arc::clone(call.backends),
            desired_digest: digest.clone(),
            revision: self.begins(call, true),
            had_it_before: applied.is_some_and(|applied| applied.digest == *digest),
        };
        self.metrics.update_attempts.inc();
        let begun = Instant::now();
        let answer = call.provider.update_load_balancer(wanted);
        let answer =
            self.called(call.at, call.provider, "update", answer, |updated| &updated.in_progress).await;
        if answer.is_err() {
            self.metrics.update_failures.inc();
        }
        self.metrics.update_latency.observe(begun.elapsed().as_secs_f64());
        answer
    }

    /// Records that the call begins; returns its revision.
    fn begins(&self, call: &OwnerCall<'_>, of_backends: bool) -> u64 {
        let digest = &call.ask.digest;
        let begin = |row: &mut Row| {
            row.asked(&call.subject.view.service, digest, of_backends);
            row.revision(Some(digest), wall_micros())
        };
        self.rows.change(call.at, &call.subject.view.service.key, begin)
    }

    async fn ensured(
        &self,
        call: &OwnerCall<'_>,
        answer: Result<Ensured, CloudError>,
    ) -> (Step, Option<Duration>) {
        let Ask { goal, digest, service, .. } = call.ask;
        let ensured = match answer {
            Ok(ensured) => ensured,
            Err(error) => {
                let retry = Retry::of(&error);
                let report = if error.is(ErrorReason::AdoptionRefused) {
                    let why = format_args!("{error}; {ADOPT_FLAG} lets the host take over the load balancer");
                    sync_failed(why, retry)
                } else {
                    not_synced(&error, retry)
                };
                self.warn(service, report);
                return (Break(self.failed(call, &error)), None);
            }
        };
        let ingress = ensured.load_balancer.ingress.clone();
        let rejected = ensured.load_balancer.rejected.join("; ");
        pass_on(&self.shell.recorder, &**service, &ensured.effects.events);
        if !rejected.is_empty() {
            self.warn(service, sync_failed(rejected, Retry::Wait));
        }
        let done = ensured.in_progress.is_none();
        let had_none = call.subject.view.service.ingress.is_empty();
        self.rows.change(call.at, &service.key, |row| {
            // While the work is in progress, an empty answer means "not known yet", so the published status stays.
            // Where there was no address, an empty answer takes none: somebody else may give the Service its address,
            // as kube-vip does.
            let takes_some = !had_none || row.status.ingress.as_ref().is_some_and(|known| !known.is_empty());
            // Nor is what the Service had already kept for it: the provider may only pass on what somebody else gave.
            let is_passed_on = row.status.ingress.is_none() && ingress == service.ingress;
            if !is_passed_on && (!ingress.is_empty() || (done && takes_some)) {
                row.status.ingress = Some(ingress);
            }
            row.status.wants(ensured.effects);
            if done {
                row.is_applied(*goal, digest.clone(), service);
            }
        });
        let written = self.write_now(call).await;
        if let Some(in_progress) = &ensured.in_progress {
            let outcome = self.in_progress(call, in_progress);
            let step = if written.is_break() { written } else { Break(outcome) };
            return (step, Some(in_progress.retry_after));
        }
        if written.is_break() {
            return (written, None);
        }
        if *goal == Goal::Wanted {
            self.tell_ensured(call.subject, call.at);
        } else {
            self.kept_up(call);
        }
        (Continue(()), None)
    }

    /// Tells once of an Ensure that has succeeded, and whose outcome is written.
    fn tell_ensured(&self, subject: &Subject<'_>, at: &RowKey) {
        let is_news = self.rows.update(at, |row| {
            let ensured = row.applied().map(|applied| applied.digest.clone());
            row.announced.take_if(|announced| Some(&**announced) == ensured.as_deref()).is_some()
        });
        if is_news == Some(true) {
            self.tell(&*subject.view.service, ENSURED);
            self.has_nodes(subject);
        }
    }

    /// Publishes the answer, which was not known when the run looked.
    async fn write_now(&self, call: &OwnerCall<'_>) -> Step {
        let service = &call.subject.view.service;
        let Some(row) = self.rows.get(call.at) else { return Continue(()) };
        let (record, status) = (self.record_of(&row), row.status.of(service));
        self.write_status(service, Some(&row), &status, record.as_ref()).await
    }

    fn updated(
        &self,
        call: &OwnerCall<'_>,
        answer: Result<Accepted, CloudError>,
    ) -> (Step, Option<Duration>) {
        let Ask { goal, digest, service, .. } = call.ask;
        let error = match answer {
            Ok(Accepted { in_progress, effects, ingress }) => {
                pass_on(&self.shell.recorder, &**service, &effects.events);
                self.rows.update(call.at, |row| {
                    if !ingress.is_empty() {
                        row.status.ingress = Some(ingress);
                    }
                    row.status.wants(effects);
                });
                if let Some(in_progress) = in_progress {
                    return (Break(self.in_progress(call, &in_progress)), None);
                }
                self.rows.update(call.at, |row| {
                    row.has_nodes(digest.clone());
                    row.node_sync = None;
                    if *goal == Goal::Wanted {
                        row.tried.remove(&Goal::Wanted);
                    }
                });
                self.kept_up(call);
                // The next look writes the status, which may differ now.
                return (Continue(()), None);
            }
            Err(error) => error,
        };
        if error.is(ErrorReason::NeedsEnsure) || error.is(ErrorReason::MethodNotSupported) {
            self.rows.update(call.at, |row| {
                if *goal == Goal::Upkeep { row.needs_ensure() } else { row.is_not_as_known() }
            });
            return (Continue(()), None);
        }
        self.warn(service, not_updated(call.backends, &error));
        (Break(self.failed(call, &error)), None)
    }

    fn kept_up(&self, call: &OwnerCall<'_>) {
        let service = &call.subject.view.service;
        self.rows.update(call.at, |row| row.node_sync = None);
        self.is_over(&RunKey::Service(service.key.clone()), &**service, NOT_UPDATED);
        if self.has_nodes(call.subject) {
            self.tell(&**service, UPDATED);
        }
    }

    /// Warns of a balancer without nodes.
    fn has_nodes(&self, subject: &Subject<'_>) -> bool {
        let (Some(provider), Some(backends)) = (&subject.seen.maker, &subject.backends) else { return true };
        let has_some = !backends.nodes.is_empty();
        if !has_some {
            self.warn(&subject.view.service, no_nodes(&self.backends.left_out(provider.as_ref())));
        }
        has_some
    }

    /// Records the failed attempt, so that nothing repeats it early, and returns when to retry.
    fn failed(&self, call: &OwnerCall<'_>, error: &CloudError) -> Outcome {
        let goal = call.ask.goal;
        let key = RunKey::Service(call.subject.view.service.key.clone());
        let retry = Retry::of(error);
        let wait = retry.delay(self.shell.queue.backoff(&key));
        tracing::debug!(service = %key, error = %error, ?wait, "a provider failed");
        let end = match error {
            error if error.is(ErrorReason::ImplementedElsewhere) => End::Elsewhere,
            error if error.is_silence() => End::Unknown,
            _ => End::Failed,
        };
        let due = self.rows.update(call.at, |row| {
            if error.is(ErrorReason::StaleRevision) {
                row.is_stale();
            }
            row.failed(goal, call.attempt(end, wait));
            row.due()
        });
        self.wake(&key, due.flatten());
        if goal == Goal::Wanted && call.ask.verb == Verb::Ensure && self.lacks_nodes(call) {
            // What is applied needs other nodes while this change waits.
            self.shell.queue.add(key);
        }
        retry.outcome(error)
    }

    fn lacks_nodes(&self, call: &OwnerCall<'_>) -> bool {
        let row = self.rows.get(call.at);
        let applied = row.as_deref().and_then(Row::applied);
        applied.is_some_and(|applied| {
            applied.doubt.backends || !covers_backends(&applied.digest, &call.backends.digest)
        })
    }

    /// Nothing is wrong; repeats the request when the provider said to.
    fn in_progress(&self, call: &OwnerCall<'_>, in_progress: &InProgress) -> Outcome {
        let InProgress { retry_after, reason, message } = in_progress;
        let service = &call.subject.view.service;
        tracing::debug!(service = %service.key, ?retry_after, reason, message, "the provider is working on it");
        let attempt = call.attempt(End::InProgress, Some(*retry_after));
        let key = RunKey::Service(service.key.clone());
        match call.ask.goal {
            // What else is wrong stays so.
            Goal::Upkeep => self.is_over(&key, &**service, NOT_UPDATED),
            Goal::Wanted | Goal::Gone => self.is_well(&key),
        }
        let said = if message.is_empty() { String::new() } else { format!(": {message}") };
        let why = format!("the provider is working on the load balancer{said}");
        self.say(&key, &**service, Report::waiting("InProgress", why, Retry::After(*retry_after)));
        let due = self.rows.update(call.at, |row| {
            row.failed(call.ask.goal, attempt);
            row.due()
        });
        self.wake(&key, due.flatten());
        Outcome::RetryAfter(*retry_after)
    }

    /// The queue keeps one delay per key: make sure that the earlier one counts.
    fn wake(&self, key: &RunKey, due: Option<Instant>) {
        if let Some(due) = due {
            self.shell.queue.add_after(key.clone(), due.saturating_duration_since(Instant::now()));
        }
    }

    fn warn(&self, service: &Service, report: Report) {
        self.say(&RunKey::Service(service.key.clone()), service, report);
    }

    /// Handles a failed write.
    fn unwritten(&self, service: &Arc<Service>, what: &str, error: &WriteError) -> Step {
        let (outcome, report) = unwritten(what, error);
        report.into_iter().for_each(|report| self.warn(service, report));
        if matches!(error, WriteError::HeldBack(_)) {
            // Nothing is wrong: what would be written is in the report of shadow mode.
            self.is_well(&RunKey::Service(service.key.clone()));
        }
        Break(outcome)
    }
}

/// One call to the owner.
struct OwnerCall<'a> {
    subject: &'a Subject<'a>,
    ask: &'a Ask,
    provider: &'a dyn Provider,
    backends: &'a Arc<BackendSet>,
    at: &'a RowKey,
}

impl OwnerCall<'_> {
    /// The attempt that this call was, not to be repeated before `wait` is over.
    fn attempt(&self, end: End, wait: Option<Duration>) -> Attempt {
        let Ask { verb, digest, .. } = self.ask;
        let at = Instant::now();
        let until = wait.map(|wait| at + wait);
        Attempt { digest: digest.clone(), of_backends: *verb == Verb::Update, end, at, since: at, until }
    }
}

/// The place in line of a call, given the last one for the same goal.
pub(super) fn rank(last: Option<&Attempt>, digest: &str) -> Rank {
    match last.filter(|last| last.is_of(digest)).map(|attempt| attempt.end) {
        None => Rank::First,
        Some(End::InProgress) => Rank::Poll,
        Some(End::Failed | End::Unknown | End::Elsewhere) => Rank::Retry,
    }
}

/// Rejects an answer that reports a balancer as done which does not serve.
pub(super) fn what_is_left(ensured: &Ensured) -> Result<Option<InProgress>, CloudError> {
    match ensured.load_balancer.state {
        _ if ensured.in_progress.is_some() => Ok(ensured.in_progress.clone()),
        LoadBalancerState::Active => Ok(None),
        LoadBalancerState::Pending => Ok(Some(InProgress {
            retry_after: UNFINISHED,
            reason: String::new(),
            message: "the balancer is pending".to_owned(),
        })),
        state @ (LoadBalancerState::Unspecified
        | LoadBalancerState::Deleting
        | LoadBalancerState::Absent
        | LoadBalancerState::NotOwned) => Err(CloudError::without_reason(
            "EnsureLoadBalancer",
            tonic::Code::Internal,
            format!("the provider reports success, but the load balancer is {state:?}"),
        )),
    }
}
