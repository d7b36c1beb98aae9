//! One call: its deadline on the wire and on this side, its metadata, span, metrics and normalised error.
//!
//! The callers decide what to call, and when.

use std::time::{Duration, Instant};

use opentelemetry::propagation::{Injector, TextMapPropagator as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::{MetadataKey, MetadataMap},
    transport::Channel,
};
use tonic_prost::ProstCodec;
use tracing::{Instrument as _, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::method::{Class, Method, Rpc};
use crate::{
    cloud::{
        CloudError, ErrorReason,
        error::code_name,
        metrics::{InFlight, ProviderMetrics},
        status,
    },
    trace,
};

/// How long after the wire deadline this side gives up: the wire deadline does not cover the response body.
const GUARD: Duration = Duration::from_millis(250);
const REQUEST_ID: &str = "x-request-id";

/// Makes a unary call. `items` is the size of a batch.
pub(crate) async fn unary<Q: Rpc>(
    metrics: &ProviderMetrics,
    mut client: Grpc<Channel>,
    deadline: Duration,
    items: Option<usize>,
    message: Q,
) -> Result<Q::Answer, CloudError> {
    let method = Q::METHOD;
    // Periodic calls to the provider itself belong to no piece of work and would fill the collector.
    let span = match method.class {
        Class::Local if Span::current().is_none() => Span::none(),
        _ => trace::call(metrics.provider(), method.service, method.name, items),
    };
    let request = request(message, Some(deadline), &span);
    let mut watch = Watch::start(metrics, method, items);
    let sent = async {
        client.ready().await.map_err(|error| Status::unknown(format!("Service was not ready: {error}")))?;
        let codec = ProstCodec::<Q, Q::Answer>::default();
        client.unary(request, PathAndQuery::from_static(method.path), codec).await
    };
    let answer = match tokio::time::timeout(deadline + GUARD, sent).instrument(span.clone()).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => {
            let error = metrics.checked(|findings| status::normalise(method.name, &status, findings));
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
pub(crate) fn request<Q>(message: Q, deadline: Option<Duration>, span: &Span) -> Request<Q> {
    let mut request = Request::new(message);
    if let Some(deadline) = deadline {
        request.set_timeout(deadline);
    }
    if let Ok(id) = uuid::Uuid::new_v4().to_string().parse() {
        request.metadata_mut().insert(REQUEST_ID, id);
    }
    inject(span, request.metadata_mut());
    request
}

/// Measures a call, including one whose caller gives up.
struct Watch<'a> {
    metrics: &'a ProviderMetrics,
    method: &'static Method,
    began: Instant,
    outcome: (&'static str, &'static str),
    _in_flight: InFlight,
}

impl<'a> Watch<'a> {
    fn start(metrics: &'a ProviderMetrics, method: &'static Method, items: Option<usize>) -> Self {
        let in_flight = metrics.begin(method, items);
        Self { metrics, method, began: Instant::now(), outcome: ("CANCELLED", ""), _in_flight: in_flight }
    }

    fn end(&mut self, error: Option<&CloudError>, span: &Span) {
        self.outcome = match error {
            None => ("OK", ""),
            Some(error) => (code_name(error.code), error.reason.map_or("", ErrorReason::wire_name)),
        };
        span.record("code", self.outcome.0);
        span.record("reason", self.outcome.1);
        if let Some(error) = error {
            span.record("otel.status_code", "ERROR");
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

/// Writes `traceparent` and `tracestate`; nothing if there is no trace.
fn inject(span: &Span, metadata: &mut MetadataMap) {
    TraceContextPropagator::new().inject_context(&span.context(), &mut Metadata(metadata));
}

struct Metadata<'a>(&'a mut MetadataMap);

impl Injector for Metadata<'_> {
    fn set(&mut self, key: &str, value: String) {
        if value.is_empty() {
            return;
        }
        if let (Ok(key), Ok(value)) = (MetadataKey::from_bytes(key.as_bytes()), value.parse()) {
            self.0.insert(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::layer::SubscriberExt as _;

    #[test]
    fn a_traced_span_travels_and_an_untraced_one_does_not() {
        let provider = SdkTracerProvider::builder().build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let mut metadata = MetadataMap::new();
            inject(&tracing::info_span!("rpc"), &mut metadata);
            let value = metadata.get("traceparent").unwrap().to_str().unwrap().to_owned();
            assert!(value.starts_with("00-") && value.len() == 55, "{value}");
        });
        let mut metadata = MetadataMap::new();
        inject(&Span::none(), &mut metadata);
        assert!(metadata.is_empty());
    }
}
