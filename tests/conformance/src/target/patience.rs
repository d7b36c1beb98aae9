//! Waits when a provider says that something is temporary, as the host does: the contract forbids providers to retry by
//! themselves, and a real cloud throttles.
//!
//! In: a call. Out: its answer, or the first that is not temporary. Each call waits for a limited time, and all calls of a run
//! together, too. A case that provokes an error does not wait for it.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use cloudprovider_proto::v1alpha1::{
    BatchDeleteRoutesResponse, BatchEnsureRoutesResponse, BatchGetInstancesResponse,
    BatchGetVolumeLabelsResponse, BatchUpdateLoadBalancersResponse, ErrorReason, ItemError,
};
use futures::stream;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use prost::Message;
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout};
use tonic::body::Body;
use tower::Service;

use super::{
    Meter, Wire, WireError,
    wire::{GRACE, deadline},
};
use crate::{invariants::Invariants, trial::read_error};

/// How long one call waits in all.
const LONGEST: Duration = Duration::from_secs(30);
/// How long to wait if the provider does not say.
const SOON: Duration = Duration::from_secs(1);
/// Flag and length in front of each gRPC message.
const PREFIX: usize = 5;

/// What a run waited for.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Waits {
    /// How long, in all.
    pub seconds: f64,
    /// How often, by reason.
    pub calls: BTreeMap<&'static str, u32>,
}

/// How long the calls of a run may still wait, and what they waited for.
#[derive(Debug)]
pub struct Patience {
    state: Mutex<(Duration, Waits)>,
    /// What it would not wait for, since the last look.
    refused: Mutex<Option<String>>,
}

impl Patience {
    /// Waits for at most this long.
    #[must_use]
    pub fn new(budget: Duration) -> Self {
        Self { state: Mutex::new((budget, Waits::default())), refused: Mutex::default() }
    }

    /// What it has been used for.
    #[must_use]
    pub fn waits(&self) -> Waits {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Why a call was not waited for since this was last called, though nobody provoked what it answered.
    pub fn refused(&self) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn refuse(&self, reason: ErrorReason, limit: &str) {
        let why = format!("the provider asked for more patience than {limit}: {}", reason.wire_name());
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    fn take(&self, reason: ErrorReason, wait: Duration) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, waits) = &mut *state;
        let Some(rest) = left.checked_sub(wait) else { return false };
        *left = rest;
        waits.seconds += wait.as_secs_f64();
        *waits.calls.entry(reason.wire_name()).or_default() += 1;
        true
    }
}

/// A connection that waits.
#[derive(Debug, Clone)]
pub struct Patient {
    /// The connection.
    pub wire: Wire,
    /// How long its calls may wait.
    pub patience: Arc<Patience>,
    /// The number of the reason that the case provokes at the moment.
    pub provoked: Arc<AtomicI32>,
    /// What no answer may break.
    pub invariants: Arc<Invariants>,
    /// Counts what the run makes.
    pub meter: Arc<Meter>,
}

impl Patient {
    async fn exchange(mut self, request: Request<Body>) -> Result<Response<Body>, WireError> {
        let path = request.uri().path().to_owned();
        if path.ends_with("/WatchInstances") {
            return Ok(self.wire.call(request).await?.map(Body::new));
        }
        let (parts, body) = request.into_parts();
        let asked = body.collect().await.map_err(|status| WireError::Request(Box::new(status)))?.to_bytes();
        let end = Instant::now() + LONGEST;
        loop {
            let request = Request::from_parts(parts.clone(), whole(asked.clone(), None));
            let (head, body) = self.wire.call(request).await?.into_parts();
            // The wire bounds the wait for the head alone.
            let most = deadline(&parts.headers).map_or(Duration::MAX, |deadline| deadline + GRACE);
            let body = timeout(most, body.collect()).await.map_err(|_| WireError::NoAnswer(most))?;
            let body = body.map_err(WireError::of_call)?;
            let trailers = body.trailers().cloned();
            let answer = body.to_bytes();
            let status = tonic::Status::from_header_map(trailers.as_ref().unwrap_or(&head.headers));
            let refused = status.filter(|status| status.code() != tonic::Code::Ok);
            match &refused {
                Some(status) => self.invariants.look(&path, Err(status)),
                None => {
                    let (asked, answer) = (asked.get(PREFIX..), answer.get(PREFIX..).unwrap_or_default());
                    self.meter.look(&path, asked.unwrap_or_default(), answer);
                    self.invariants.look(&path, Ok(answer));
                }
            }
            match refused.as_ref().and_then(of_status).or_else(|| of_items(&path, answer.get(PREFIX..)?)) {
                Some((reason, wait)) if self.may_wait(reason, wait, end) => sleep(wait).await,
                _ => return Ok(Response::from_parts(head, whole(answer, trailers))),
            }
        }
    }

    fn may_wait(&self, reason: ErrorReason, wait: Duration, end: Instant) -> bool {
        if self.provoked.load(Ordering::Relaxed) == reason as i32 {
            return false;
        }
        if Instant::now() + wait >= end {
            self.patience.refuse(reason, &format!("{LONGEST:?} for one call"));
            return false;
        }
        let may = self.patience.take(reason, wait);
        if !may {
            self.patience.refuse(reason, "the scenario's `patience`");
        }
        may
    }
}

impl Service<Request<Body>> for Patient {
    type Response = Response<Body>;
    type Error = WireError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, WireError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        self.wire.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().exchange(request))
    }
}

/// A body of these bytes, of no announced length, as gRPC's are.
fn whole(data: Bytes, trailers: Option<HeaderMap>) -> Body {
    let data = (!data.is_empty()).then(|| Frame::data(data));
    let frames: Vec<_> =
        data.into_iter().chain(trailers.map(Frame::trailers)).map(Ok::<_, Infallible>).collect();
    Body::new(StreamBody::new(stream::iter(frames)))
}

/// What the host waits for by itself.
pub(crate) fn is_temporary(reason: ErrorReason) -> bool {
    matches!(
        reason,
        ErrorReason::RateLimited
            | ErrorReason::RetryLater
            | ErrorReason::ProviderOverloaded
            | ErrorReason::ConcurrentOperation
            | ErrorReason::CloudApiUnavailable
    )
}

fn of_status(status: &tonic::Status) -> Option<(ErrorReason, Duration)> {
    let seen = read_error(status);
    let reason = seen.reason.filter(|reason| is_temporary(*reason))?;
    Some((reason, seen.retry.and_then(|retry| retry.retry_delay).unwrap_or(SOON)))
}

/// The first item of a batch that is temporarily refused.
fn of_items(path: &str, message: &[u8]) -> Option<(ErrorReason, Duration)> {
    let errors: Vec<ItemError> = match path.rsplit('/').next()? {
        "BatchGetInstances" => items(message, |all: BatchGetInstancesResponse| all.results, |one| one.error),
        "BatchUpdateLoadBalancers" => {
            items(message, |all: BatchUpdateLoadBalancersResponse| all.results, |one| one.error)
        }
        "BatchEnsureRoutes" => items(message, |all: BatchEnsureRoutesResponse| all.results, |one| one.error),
        "BatchDeleteRoutes" => items(message, |all: BatchDeleteRoutesResponse| all.results, |one| one.error),
        "BatchGetVolumeLabels" => {
            items(message, |all: BatchGetVolumeLabelsResponse| all.results, |one| one.error)
        }
        _ => return None,
    };
    let error = errors.into_iter().find(|error| is_temporary(error.reason()))?;
    Some((error.reason(), error.retry_after.and_then(|after| after.try_into().ok()).unwrap_or(SOON)))
}

fn items<M: Message + Default, I>(
    message: &[u8],
    results: impl Fn(M) -> Vec<I>,
    error: impl Fn(I) -> Option<ItemError>,
) -> Vec<ItemError> {
    M::decode(message).map(results).unwrap_or_default().into_iter().filter_map(error).collect()
}
