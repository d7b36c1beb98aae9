//! Exports traces, if a collector is configured.
//!
//! In: [`TraceSettings`], and OpenTelemetry's environment variables. Out: the spans of `ccm_base::trace`, by OTLP over
//! gRPC. A thread of its own sends them: its queue is bounded, and spans that do not fit are dropped, so that a
//! collector that is down or hangs costs spans and never time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{KeyValue, global};
use opentelemetry_otlp::{SpanExporter as OtlpExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter};
use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

use super::VERSION;
use ccm_base::{
    flag::{self, Wrong},
    trace::{OURS, TARGET},
};

const MILLION: u32 = 1_000_000;
const SERVICE: &str = "ccm-host";
/// Time for the last spans at the end of the process; its pod is killed soon after.
const LAST_SPANS: Duration = Duration::from_millis(500);
/// As many as the items of a large batch; OpenTelemetry's default is 128.
const LINKS: u32 = 1024;
/// The more specific one first.
const VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// One field per flag.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Tracing")]
#[group(skip)]
pub struct TraceSettings {
    /// OTLP collector for traces (gRPC without TLS), as host:port or http://host:port; defaults to
    /// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT, or none.
    #[arg(long, value_name = "STRING", value_parser = collector)]
    pub tracing_endpoint: Option<String>,

    /// Number of traces to send out of a million.
    #[arg(long, value_name = "INT", default_value = "1000000", value_parser = part)]
    pub tracing_sampling_rate_per_million: u32,
}

/// Parses the URL of a collector.
fn collector(text: &str) -> Result<String, Wrong> {
    let wrong = |problem| {
        Wrong::new(problem, "give host:port of a collector in the pod or on the node, such as localhost:4317")
    };
    flag::without_password(text, "give host:port; collectors are called without credentials")?;
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: http::Uri = url.parse().map_err(|_invalid| wrong("is not an address"))?;
    match uri.scheme_str() {
        Some("https") => Err(wrong("requires TLS, which is not supported for collectors")),
        Some("http") if uri.port().is_some() => Ok(url),
        _ => Err(wrong("is not an address with a port")),
    }
}

fn part(text: &str) -> Result<u32, Wrong> {
    let wrong = || Wrong::new("is not a part of a million", format!("give 0 to {MILLION}"));
    text.parse().ok().filter(|rate| *rate <= MILLION).ok_or_else(wrong)
}

/// Sends the spans of this process.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    /// Starts sending spans; `None` without a collector. Must be called within a runtime.
    ///
    /// # Errors
    /// A variable of OpenTelemetry has an unusable value. It may be meant for others, as those that are set for a whole
    /// namespace are: whoever calls this goes on without traces.
    pub fn start(settings: &TraceSettings) -> anyhow::Result<Option<Self>> {
        let Some(endpoint) = endpoint(settings, |name| std::env::var(name).ok())? else { return Ok(None) };
        let exporter = OtlpExporter::builder().with_tonic().with_endpoint(endpoint.clone()).build();
        let exporter = exporter.with_context(|| format!("traces cannot be sent to {endpoint}"))?;
        let exporter = RefusalLog { exporter, endpoint, failing: AtomicBool::new(false) };
        let sampler = Sampler::TraceIdRatioBased(f64::from(settings.tracing_sampling_rate_per_million) / 1e6);
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::ParentBased(Box::new(sampler)))
            .with_max_links_per_span(LINKS)
            .with_resource(resource())
            .build();
        global::set_tracer_provider(provider.clone());
        Ok(Some(Self { provider }))
    }

    /// Collects the spans of a trace, whatever the log shows.
    pub(super) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let spans = Targets::new().with_target(OURS, LevelFilter::INFO);
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer(TARGET))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(spans.with_target(TARGET, LevelFilter::DEBUG))
    }

    /// Sends the remaining spans, within a short time limit. The runtime must still run.
    pub fn end(self) {
        if let Err(error) = self.provider.shutdown_with_timeout(LAST_SPANS) {
            tracing::debug!(%error, "the last spans were not sent");
        }
    }
}

/// The collector from the flag, or from the environment.
fn endpoint(
    settings: &TraceSettings,
    variable: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<String>> {
    if settings.tracing_endpoint.is_some() {
        return Ok(settings.tracing_endpoint.clone());
    }
    let set =
        VARIABLES.iter().find_map(|name| Some((name, variable(name).filter(|value| !value.is_empty())?)));
    set.map(|(name, value)| {
        collector(&value).map_err(|why| {
            let given = if why.is_secret { (*name).to_owned() } else { format!("{name}={value}") };
            anyhow::anyhow!("{given}: {why}")
        })
    })
    .transpose()
}

/// The service name: from OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES, or ours.
fn resource() -> Resource {
    let build = || Resource::builder().with_attribute(KeyValue::new("service.version", VERSION));
    let told = build().build();
    let name = told.get(&"service.name".into()).map(|name| name.to_string()).unwrap_or_default();
    if name.is_empty() || name.starts_with("unknown_service") {
        return build().with_service_name(SERVICE).build();
    }
    told
}

/// Logs when the collector starts and stops refusing spans.
#[derive(Debug)]
struct RefusalLog<E> {
    exporter: E,
    endpoint: String,
    failing: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for RefusalLog<E> {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        let result = self.exporter.export(spans).await;
        let failed = self.failing.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Err(error) if !failed => {
                tracing::warn!(endpoint = self.endpoint, %error, "traces are lost: the collector does not accept them");
            }
            Ok(()) if failed => tracing::info!(endpoint = self.endpoint, "the collector takes traces again"),
            _ => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(endpoint: Option<&str>) -> TraceSettings {
        TraceSettings {
            tracing_endpoint: endpoint.map(str::to_owned),
            tracing_sampling_rate_per_million: 1_000_000,
        }
    }

    #[test]
    fn the_flag_wins_and_then_the_more_special_variable() {
        let both = |name: &str| match name {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" => Some("http://special:4317".to_owned()),
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://general:4317".to_owned()),
            _ => None,
        };
        let general = |name: &str| both(name).filter(|url| url.contains("general"));
        let wrong = |name: &str| general(name).map(|url| url.replace("http", "https"));
        let of = |flag: Option<&str>, variable: &dyn Fn(&str) -> Option<String>| {
            endpoint(&settings(flag), variable).map_err(|error| error.to_string())
        };
        assert_eq!(of(Some("http://given:1"), &both), Ok(Some("http://given:1".to_owned())));
        assert_eq!(of(None, &both), Ok(Some("http://special:4317".to_owned())));
        assert_eq!(of(None, &general), Ok(Some("http://general:4317".to_owned())));
        assert_eq!(of(None, &|_| None), Ok(None));
        assert_eq!(of(None, &|_| Some(String::new())), Ok(None));
        assert!(of(None, &wrong).unwrap_err().contains("OTEL_EXPORTER_OTLP_ENDPOINT"));
        let secret = of(None, &|_| Some("http://u:s3cret@host:4317".to_owned())).unwrap_err();
        assert!(secret.contains("password") && !secret.contains("s3cret"), "{secret}");
    }
}
