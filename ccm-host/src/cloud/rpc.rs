//! One call: its deadline on the wire and on this side, its metadata, span, metrics and normalised error.
//!
//! The callers decide what to call, and when.

mod metadata;

use std::time::{Duration, Instant};

use tonic::{Code, Request, Response, Status};
use tracing::{Instrument as _, Span};

use super::{
    CloudError,
    check::Findings,
    error::code_name,
    method::{Class, Method},
    metrics::ProviderMetrics,
    status,
};
use crate::trace;

/// How long after the wire deadline this side gives up: the wire deadline does not cover the response body.
const GUARD: Duration = Duration::from_millis(250);
const REQUEST_ID: &str = "x-request-id";

/// Makes a unary call. `items` is the size of a batch.
pub(super) async fn unary<Q, A, F>(
    metrics: &ProviderMetrics,
    method: &'static Method,
    deadline: Duration,
    items: Option<usize>,
    message: Q,
    send: impl FnOnce(Request<Q>) -> F,
) -> Result<A, CloudError>
where
    F: Future<Output = Result<Response<A>, Status>>,
{
    // Periodic calls to the provider itself belong to no piece of work and would fill the collector.
    let span = match method.class {
        Class::Local if Span::current().is_none() => Span::none(),
        _ => trace::call(metrics.provider(), method.service, method.name, items),
    };
    let request = request(message, Some(deadline), &span);
    let mut watch = Watch::start(metrics, method, items);
    let answer = tokio::time::timeout(deadline + GUARD, send(request)).instrument(span.clone()).await;
    let answer = match answer {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => {
            let mut findings = Findings::default();
            let error = status::normalise(method.name, &status, &mut findings);
            metrics.findings(&findings);
            // The same error, whichever end noticed first and however it says so.
            let late = error.code == Code::DeadlineExceeded && error.reason.is_none();
            Err(if late { status::deadline_exceeded(method.name, deadline) } else { error })
        }
        Err(_) => Err(status::deadline_exceeded(method.name, deadline)),
    };
    watch.end(answer.as_ref().err(), &span);
    answer
}

/// A request with the deadline and metadata of every call.
pub(super) fn request<Q>(message: Q, deadline: Option<Duration>, span: &Span) -> Request<Q> {
    let mut request = Request::new(message);
    if let Some(deadline) = deadline {
        request.set_timeout(deadline);
    }
    if let Ok(id) = uuid::Uuid::new_v4().to_string().parse() {
        request.metadata_mut().insert(REQUEST_ID, id);
    }
    metadata::inject(span, request.metadata_mut());
    request
}

/// Measures a call, including one whose caller gives up.
struct Watch<'a> {
    metrics: &'a ProviderMetrics,
    method: &'static Method,
    began: Instant,
    outcome: (&'static str, &'static str),
    _in_flight: super::metrics::InFlight,
}

impl<'a> Watch<'a> {
    fn start(metrics: &'a ProviderMetrics, method: &'static Method, items: Option<usize>) -> Self {
        let in_flight = metrics.begin(method, items);
        Self { metrics, method, began: Instant::now(), outcome: ("CANCELLED", ""), _in_flight: in_flight }
    }

    fn end(&mut self, error: Option<&CloudError>, span: &Span) {
        self.outcome = match error {
            None => ("OK", ""),
            Some(error) => (code_name(error.code), error.reason.map_or("", super::ErrorReason::wire_name)),
        };
        span.record("code", self.outcome.0);
        span.record("reason", self.outcome.1);
        if error.is_some() {
            span.record("otel.status_code", "ERROR");
        }
        if let Some(error) = error {
            self.metrics.failed(error);
            tracing::debug!(parent: span, provider = self.metrics.provider(), %error, "call failed");
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.metrics.ended(self.method, self.outcome.0, self.outcome.1, self.began.elapsed());
    }
}
