//! The W3C trace context of a span, as metadata of a call.

use opentelemetry::propagation::{Injector, TextMapPropagator as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tonic::metadata::{MetadataKey, MetadataMap};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Writes `traceparent` and `tracestate`; nothing if there is no trace.
pub(super) fn inject(span: &Span, metadata: &mut MetadataMap) {
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
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

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
