//! The path of every call: admitted or refused, run with its context, ended in time and without a panic.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cloudprovider_proto::RequestMessage;
use cloudprovider_proto::method::{Class, LEAD};
use futures::FutureExt as _;
use futures::future::{Either, ready};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};
use tracing::{Instrument as _, Span};

use super::background;
use super::deadline;
use super::lanes::Lanes;
use super::method;
use crate::checks::{self, BackendSets, Leadership, Mutation, Revisions, Term, stale};
use crate::context::{CallContext, Peer};
use crate::error::causes;
use crate::metrics::{Method, Metrics};
use crate::proto::{Capability, ErrorReason, LeadRequest, LeadResponse};
use crate::provider::{Advertised, Lifecycle, Provider, WhileLeading};
use crate::{ProviderError, Result};

/// The contract's longest deadline: nobody waits any more, and a cloud that never answers must not keep the
/// key for ever.
const MUTATION_BOUND: Duration = Duration::from_secs(600);

/// The id of a call, which the server adds to the request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

/// Shared by all calls of one provider.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) advertised: Advertised,
    pub(crate) lifecycle: Arc<Lifecycle>,
    revisions: Revisions,
    sets: BackendSets,
    lanes: Lanes,
    /// As many calls as the provider advertises run at once: others wait, and the cloud's limits hold whoever calls.
    reads: Semaphore,
    mutations: Arc<Semaphore>,
    metrics: Arc<Metrics>,
    leadership: Leadership,
    while_leading: Option<WhileLeading>,
    /// The background work of the last term, by cluster uid.
    works: Mutex<HashMap<String, JoinHandle<()>>>,
    /// The zero of the clock that leaders are told of.
    started: Instant,
}

fn places(most: u32) -> Semaphore {
    Semaphore::new((most as usize).min(Semaphore::MAX_PERMITS))
}

/// An admitted call.
pub(crate) struct Call<Q> {
    pub(crate) ctx: CallContext,
    pub(crate) request: Q,
    timeout: Option<Duration>,
    /// The term of a mutation, if the provider uses `Lead` and a leader was elected.
    term: Option<Term>,
    /// Held while somebody waits for the response; its drop signals that the caller is gone.
    pub(crate) waiting: DropGuard,
}

impl Core {
    pub(crate) fn new(provider: &Provider) -> Arc<Self> {
        Arc::new(Self {
            advertised: provider.advertised.clone(),
            lifecycle: Arc::clone(&provider.lifecycle),
            revisions: Revisions::default(),
            sets: BackendSets::new(provider.advertised.limits.max_message_bytes as usize),
            lanes: Lanes::default(),
            reads: places(provider.advertised.limits.max_concurrent_reads),
            mutations: Arc::new(places(provider.advertised.limits.max_concurrent_mutations)),
            metrics: Arc::clone(&provider.metrics),
            leadership: Leadership::default(),
            while_leading: provider.while_leading.clone(),
            works: Mutex::default(),
            started: Instant::now(),
        })
    }

    /// Runs a read, which ends when the caller is gone or its deadline has passed.
    pub(crate) async fn read<Q, A, F>(
        &self,
        request: Request<Q>,
        run: impl FnOnce(CallContext, Q) -> F,
    ) -> Result<Response<A>, Status>
    where
        Q: RequestMessage,
        F: Future<Output = Result<A>>,
    {
        let stop = self.lifecycle.stop.child_token();
        let call = self.admit(request, stop.clone())?;
        // A read that nobody waits for is useless.
        let _given_up_with_the_caller = stop.drop_guard();
        let ctx = call.ctx.clone();
        let work = AssertUnwindSafe(causes::counted(run(call.ctx, call.request))).catch_unwind();
        let work = async {
            let is_limited = Q::METHOD.class == Class::Read;
            let _place = if is_limited { self.reads.acquire().await.ok() } else { None };
            work.await
        };
        let ended = within(call.timeout, work).await?;
        drop(call.waiting.disarm());
        answer(&ctx, ended).map(Response::new)
    }

    /// Runs a mutation. Once started it finishes, even if the caller is gone, unless leadership ends or it
    /// takes longer than any deadline. It joins an identical running mutation, and is refused if another one
    /// works on one of its keys.
    pub(crate) async fn mutate<Q, F>(
        &self,
        request: Request<Q>,
        run: impl FnOnce(CallContext, Q) -> F,
    ) -> Result<Response<Q::Answer>, Status>
    where
        Q: Mutation,
        F: Future<Output = Result<Q::Answer>> + Send + 'static,
    {
        let give_up = self.lifecycle.give_up.child_token();
        let Call { mut ctx, request, timeout, term, waiting } = self.admit(request, give_up)?;
        if let Some(term) = &term {
            // Not of the method: what it leaves behind when it answers must hear of the end as well.
            ctx.give_up = term.give_up.child_token();
        }
        let about = ctx.clone();
        let joined = self.lanes.run(request, &self.lifecycle, |mut request, claim| {
            let refused = request.admit(&mut |subject, revision| {
                self.revisions.accept(&subject, revision)?;
                claim.take(subject)
            })?;
            let (ctx, fencing) = (about.clone(), request.fencing().cloned().unwrap_or_default());
            let work = if request.items() == Some(0) {
                Either::Left(ready(Ok(Q::Answer::default())))
            } else {
                let of_one = request.items().is_none_or(|items| items == 1);
                let (work, places) = (causes::counted(run(about, request)), Arc::clone(&self.mutations));
                Either::Right(async move {
                    let _place = places.acquire().await;
                    let began = Instant::now();
                    let ended = work.await;
                    if of_one { ended.map_err(|error| error.of_its_object(began.elapsed())) } else { ended }
                })
            };
            let work = AssertUnwindSafe(work).catch_unwind();
            let work = async move {
                let Some(term) = term else { return work.await };
                // Dropped at its next await, it starts no further cloud call.
                tokio::select! {
                    biased;
                    () = term.ended() => Ok(Err(stale(&fencing))),
                    ended = work => ended,
                }
            };
            let work = async move {
                let ended = within(Some(MUTATION_BOUND), work).await;
                let mut answer = answer(&ctx, ended.inspect_err(|_| ctx.give_up.cancel())?)?;
                Q::add(&mut answer, refused);
                Ok(answer)
            };
            Ok(work.in_current_span().boxed())
        });
        let joined = joined.map_err(|error| fail(&ctx, error))?;
        let answer = within(timeout, joined).await?;
        drop(waiting.disarm());
        answer.map(Response::new)
    }

    /// Refuses calls that must not reach a method, in the contract's order.
    pub(crate) fn admit<Q: RequestMessage>(
        &self,
        request: Request<Q>,
        give_up: CancellationToken,
    ) -> Result<Call<Q>, Status> {
        let method = method::of(Q::METHOD);
        if let Some(capability) = Q::METHOD.capability
            && !self.advertised.has(capability)
        {
            return Err(ProviderError::method_not_supported(method.method).to_status());
        }
        let timeout = deadline::timeout(request.metadata());
        let caller_gone = CancellationToken::new();
        let ctx = CallContext {
            service: method.service,
            method: method.method,
            request_id: request.extensions().get().map_or_else(String::new, |RequestId(id)| id.clone()),
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            cluster: request.get_ref().cluster().cloned(),
            peer: request.extensions().get().cloned().unwrap_or(Peer::Unknown),
            traceparent: request
                .metadata()
                .get("traceparent")
                .and_then(|text| text.to_str().ok())
                .map(str::to_owned),
            span: Span::current(),
            give_up,
            caller_gone: caller_gone.clone(),
        };
        let mut request = request.into_inner();
        self.note(method, &ctx, &request);
        let term = self.check(&request).map_err(|error| fail(&ctx, error))?;
        if let Some(set) = request.backends() {
            self.sets.complete(ctx.cluster_uid(), set).map_err(|error| fail(&ctx, error))?;
        }
        checks::fit(&mut request, &self.advertised);
        Ok(Call { ctx, request, timeout, term, waiting: caller_gone.drop_guard() })
    }

    fn note<Q: RequestMessage>(&self, method: Method, ctx: &CallContext, request: &Q) {
        ctx.span.record("cluster_uid", ctx.cluster_uid());
        if let Some(items) = request.items() {
            ctx.span.record("items", items);
            self.metrics.batch(method, items);
        }
    }

    /// The term under which a mutation may run.
    fn check<Q: RequestMessage>(&self, request: &Q) -> Result<Option<Term>> {
        // A leader renews the term of its last mutations, and then steps down.
        let is_lead = *Q::METHOD == LEAD;
        if self.lifecycle.stop.is_cancelled() && !is_lead {
            return Err(ProviderError::shutting_down());
        }
        // `Lead` begins a term, and so needs none.
        let term = if is_lead { None } else { self.term(request)? };
        checks::shape(request, &self.advertised)?;
        Ok(term)
    }

    /// The term of a mutation if the provider uses `Lead`; refuses a host that is not the current leader.
    fn term<Q: RequestMessage>(&self, request: &Q) -> Result<Option<Term>> {
        match (request.cluster(), request.fencing()) {
            (Some(cluster), Some(fencing))
                if self.advertised.has(Capability::Leadership) && !cluster.uid.is_empty() =>
            {
                self.leadership.term(&cluster.uid, fencing)
            }
            // The shape check refuses missing fields, without which nobody can say who leads.
            _ => Ok(None),
        }
    }

    /// Handles `Lead`. The provider's background work starts and ends with the term.
    pub(crate) fn hear(&self, request: LeadRequest) -> Result<LeadResponse> {
        let (cluster, leader) = (request.cluster.unwrap_or_default(), request.fencing.unwrap_or_default());
        let heard_at = self.started.elapsed();
        let answer = LeadResponse { heard_at: heard_at.try_into().ok() };
        // A negative duration counts as zero.
        let read = |time| Duration::try_from(time).unwrap_or_default();
        let valid_for = match (request.valid_for.map(read), request.valid_until.map(read)) {
            (Some(left), Some(until)) if !left.is_zero() => Some(until.saturating_sub(heard_at)),
            (left, _) => left,
        };
        let Some(term) = self.leadership.hear(&cluster.uid, &leader, valid_for)? else {
            return Ok(answer);
        };
        let (led, grace_is_over) = (term.clone(), self.lifecycle.give_up.clone());
        self.lifecycle.terms.spawn(async move {
            tokio::select! {
                () = led.ended() => {}
                () = grace_is_over.cancelled() => {}
            }
            led.give_up.cancel();
        });
        if let Some(work) = self.while_leading.clone() {
            let (uid, stop) = (cluster.uid.clone(), self.lifecycle.stop.clone());
            let mut works = self.works.lock();
            let before = works.remove(&uid);
            let (work, terms) = (background::run(work, cluster), &self.lifecycle.terms);
            let work = terms.spawn(async move {
                // That of the last term may be busy still, and two must not write to the cloud.
                if let Some(before) = before {
                    let _ended = before.await;
                }
                tokio::select! {
                    biased;
                    () = term.ended() => {}
                    () = stop.cancelled() => {}
                    () = work => {}
                }
            });
            works.insert(uid, work);
        }
        Ok(answer)
    }
}

async fn within<T>(timeout: Option<Duration>, work: impl Future<Output = T>) -> Result<T, Status> {
    let Some(timeout) = timeout else { return Ok(work.await) };
    time::timeout(deadline::patience(timeout), work)
        .await
        .map_err(|_| Status::deadline_exceeded("the deadline has passed; the outcome is unknown"))
}

type Ended<A> = Result<Result<A>, Box<dyn Any + Send>>;

fn answer<A>(ctx: &CallContext, ended: Ended<A>) -> Result<A, Status> {
    match ended {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(fail(ctx, error)),
        // The panic's message was logged where it happened; it may contain anything, so it goes no further.
        Err(_panic) => Err(fail(ctx, ProviderError::internal("the method panicked"))),
    }
}

/// An error that leaves the process: its cause stays in the log.
pub(crate) fn fail(ctx: &CallContext, error: ProviderError) -> Status {
    ctx.span.in_scope(|| error.log_cause());
    if error.reason() == ErrorReason::InternalError {
        return error.with_metadata("request_id", ctx.request_id()).to_status();
    }
    error.to_status()
}
