//! One call: its deadline on the wire and on this side, its metadata, span, metrics
//! and normalised error.
//!
//! The callers decide what to call, and when.

use std::{
    any::Any,
    time::{Duration, Instant},
};

use cloudprovider_proto::{code_name, v1alpha1 as pb};
use opentelemetry::propagation::{Injector, TextMapPropagator as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use prost::Message;
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::{MetadataKey, MetadataMap},
    transport::Channel,
};
use tracing::{Instrument as _, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::answer::{Bounded, most_bytes};
use crate::{
    CloudError, ErrorReason,
    method::{Class, Method},
    metrics::ProviderMetrics,
    sent_sets::Spliced,
};
use ccm_base::trace;

/// Whose object the call is about: the namespace of a Service, the user of an SSH key; `None` if it is about many.
pub(crate) fn whose(message: &dyn Any) -> Option<&str> {
    use pb::{
        AddSshKeyToAllInstancesRequest as AddKey, DeleteLoadBalancerRequest as Delete,
        EnsureLoadBalancerRequest as Ensure, GetLoadBalancerRequest as Get,
    };
    let get = || message.downcast_ref::<Get>()?.service.as_ref();
    let delete = || message.downcast_ref::<Delete>()?.service.as_ref();
    let spliced = || message.downcast_ref::<Spliced<Ensure>>().map(|spliced| &spliced.message);
    let ensure = || message.downcast_ref().or_else(spliced)?.service.as_ref()?.r#ref.as_ref();
    let key = || Some(message.downcast_ref::<AddKey>()?.user.as_str());
    get().or_else(delete).or_else(ensure).map(|service| service.namespace.as_str()).or_else(key)
}

/// Maximum bytes of what a provider says of itself.
const OF_ITSELF: usize = 1 << 20;
/// How long after the wire deadline this side gives up: the wire deadline does not cover the response body.
const GUARD: Duration = Duration::from_millis(250);
const REQUEST_ID: &str = "x-request-id";

/// Makes a unary call. `lost` is cancelled when the connection will carry no answer any more; `items` is the size of a batch.
/// The answer has at most `message_bytes`, less if its question warrants no more.
#[allow(clippy::too_many_arguments, reason = "each is another part of one call")]
pub(crate) async fn unary<Q: Message + 'static, A: Message + Default + 'static>(
    metrics: &ProviderMetrics,
    client: Grpc<Channel>,
    message_bytes: usize,
    lost: &CancellationToken,
    deadline: Duration,
    items: Option<usize>,
    method: &'static Method,
    message: Q,
) -> Result<A, CloudError> {
    // Periodic calls to the provider itself belong to no piece of work and would fill the collector.
    let span = match method.class {
        Class::Local if Span::current().is_none() => Span::none(),
        _ => trace::call(metrics.provider(), method.service, method.name, items),
    };
    let most = match method.class {
        Class::Local => OF_ITSELF,
        _ => most_bytes(items.or(whose(&message).map(|_| 1))),
    };
    let mut client = client.max_decoding_message_size(most.min(message_bytes));
    let request = request(message, Some(deadline), &span);
    let mut watch = Measured::start(metrics, method, items);
    let sent = async {
        client.ready().await.map_err(|error| Status::unknown(format!("Service was not ready: {error}")))?;
        let codec = Bounded::<Q, A>::new(method.path, most);
        client.unary(request, PathAndQuery::from_static(method.path), codec).await
    };
    // An answer that is there counts, and so does the transport's own word.
    let sent = async {
        tokio::select! { biased; answer = sent => Some(answer), () = lost.cancelled() => None }
    };
    let answer = match tokio::time::timeout(deadline + GUARD, sent).instrument(span.clone()).await {
        Ok(None) => {
            Err(CloudError::unavailable(method.name, "the connection was lost before an answer came"))
        }
        Ok(Some(Ok(response))) => Ok(response.into_inner()),
        Ok(Some(Err(status))) => {
            let error = metrics.checked(|findings| CloudError::of_status(method.name, &status, findings));
            // The same error, whichever end noticed first and however it says so.
            let late = error.code == Code::DeadlineExceeded && error.reason.is_none();
            Err(if late { CloudError::deadline_exceeded(method.name, deadline) } else { error })
        }
        Err(_) => Err(CloudError::deadline_exceeded(method.name, deadline)),
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
struct Measured<'a> {
    metrics: &'a ProviderMetrics,
    method: &'static Method,
    began: Instant,
    outcome: (&'static str, &'static str),
}

impl<'a> Measured<'a> {
    fn start(metrics: &'a ProviderMetrics, method: &'static Method, items: Option<usize>) -> Self {
        metrics.begin(method, items);
        Self { metrics, method, began: Instant::now(), outcome: ("CANCELLED", "") }
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
            self.metrics.log().failed(error);
            tracing::debug!(parent: span, provider = self.metrics.provider(), %error, "call failed");
        }
    }
}

impl Drop for Measured<'_> {
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
