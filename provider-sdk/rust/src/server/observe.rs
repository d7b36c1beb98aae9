//! The span and the metrics of every RPC, as its caller sees it.

use std::sync::Arc;
use tokio::time::Instant;

use http::HeaderMap;
use tonic::{Code, Status};
use tower::{ServiceExt as _, service_fn};
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use super::hook::{GrpcRequest, GrpcService};
use crate::metrics::{Method, Metrics};
use crate::rpc::{RequestId, method};
use crate::telemetry::continue_trace;
use crate::{ProviderError, code_name};

/// The metadata key of a call's id.
const REQUEST_ID: &str = "x-request-id";
const LONGEST_REQUEST_ID: usize = 64;
/// The reason of a call without one.
const NO_REASON: &str = "";

/// The services, with a span and metrics for each call.
pub(super) fn observed(services: GrpcService, metrics: Arc<Metrics>) -> GrpcService {
    GrpcService::new(service_fn(move |mut request: GrpcRequest| {
        let method = method::of_path(request.uri().path());
        let id = request_id(request.headers());
        let span = span(method, &id, request.uri().path());
        continue_trace(&span, request.headers());
        request.extensions_mut().insert(RequestId(id));
        let running = Running::start(method, Arc::clone(&metrics), span.clone());
        let answer = services.clone().oneshot(request);
        async move {
            let mut running = running;
            let answer = answer.instrument(span).await;
            match &answer {
                Ok(answer) => running.outcome = outcome(answer.headers()),
                Err(_) => running.outcome = (Code::Unknown, NO_REASON),
            }
            answer
        }
    }))
}

fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    given
        .filter(|id| (1..=LONGEST_REQUEST_ID).contains(&id.len()))
        .map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned)
}

fn span(method: Method, request_id: &str, path: &str) -> Span {
    tracing::info_span!(
        "rpc",
        otel.name = path,
        otel.kind = "server",
        service = method.service,
        method = method.method,
        request_id,
        cluster_uid = Empty,
        items = Empty,
        code = Empty,
        reason = Empty,
    )
}

/// An error without a body is in the response's headers; the end of a stream is not awaited.
fn outcome(headers: &HeaderMap) -> (Code, &'static str) {
    let Some(status) = Status::from_header_map(headers) else { return (Code::Ok, NO_REASON) };
    let reason = ProviderError::from_status(&status).map_or(NO_REASON, |error| error.reason().wire_name());
    (status.code(), reason)
}

/// A running RPC; dropped early if its caller goes away.
struct Running {
    method: Method,
    metrics: Arc<Metrics>,
    span: Span,
    began: Instant,
    outcome: (Code, &'static str),
}

impl Running {
    fn start(method: Method, metrics: Arc<Metrics>, span: Span) -> Self {
        metrics.started(method);
        Self { method, metrics, span, began: Instant::now(), outcome: (Code::Cancelled, NO_REASON) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (code, reason) = self.outcome;
        let took = self.began.elapsed();
        self.metrics.ended(self.method, code_name(code), reason, took);
        self.span.record("code", code_name(code));
        self.span.record("reason", reason);
        let _entered = self.span.enter();
        match code {
            Code::Ok => tracing::debug!(?took, "answered"),
            Code::Internal | Code::Unknown | Code::DataLoss => tracing::warn!(?took, "failed"),
            _ => tracing::info!(?took, "refused"),
        }
    }
}
