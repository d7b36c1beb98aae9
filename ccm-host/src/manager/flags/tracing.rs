//! Tracing: the collector, and the sampling rate.

use crate::flag::Wrong;

const MILLION: u32 = 1_000_000;

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
pub(in crate::manager) fn collector(text: &str) -> Result<String, Wrong> {
    let wrong = |problem| {
        Wrong::new(problem, "give host:port of a collector in the pod or on the node, such as localhost:4317")
    };
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
