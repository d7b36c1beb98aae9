//! Logs and traces of a sidecar, set up once at its start.
//!
//! In: format and level. Out: log lines on stderr with secrets redacted, and spans that continue the caller's
//! trace. Exporting traces is up to the provider; see [`layer`].

use std::io::{self, Write};

use cloudprovider_proto::scrub;
use http::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use thiserror::Error;
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::{EnvFilter, ParseError};
use tracing_subscriber::fmt::{self, MakeWriter, format};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// Text, for humans.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// The level is invalid.
    #[error("{level:?} is not a log level; use for example info, or info,my_crate=debug")]
    Level {
        /// The given level.
        level: String,
        /// What is wrong with it.
        source: ParseError,
    },
    /// A global subscriber already exists.
    #[error("logging is already set up in this process")]
    Twice(#[from] TryInitError),
}

/// Sets up logs on stderr, traces that continue the caller's, and a panic hook that logs. Call it once, at the start.
///
/// # Errors
/// If the level is invalid, or logging is already set up.
pub fn init(format: LogFormat, level: &str) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(level)
        .map_err(|source| TelemetryError::Level { level: level.to_owned(), source })?;
    let tracer = SdkTracerProvider::builder().build().tracer("cloudprovider-sdk");
    tracing_subscriber::registry()
        .with(layer(format, io::stderr).with_filter(filter))
        .with(tracing_opentelemetry::layer().with_tracer(tracer))
        .try_init()?;
    log_panics();
    Ok(())
}

/// The log layer alone, for providers that build their own subscriber: this format, with secrets redacted, to
/// this writer.
pub fn layer<S, M>(format: LogFormat, writer: M) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    M: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    // A line that cannot be written is lost: telling so on stderr panics where stderr is what fails.
    let lines = fmt::layer().log_internal_errors(false).with_writer(ScrubbingWriter::new(writer));
    match format {
        LogFormat::Json => lines.json().boxed(),
        LogFormat::Text => {
            // In a line of text an unquoted value has no definite end: the field decides, not the line.
            let fields = format::debug_fn(|out, field, value| match field.name() {
                "message" => write!(out, "{value:?}"),
                secret if scrub::names_a_secret(secret) => write!(out, "{secret}={}", scrub::REDACTED),
                name => write!(out, "{name}={value:?}"),
            });
            lines.with_ansi(false).fmt_fields(fields.delimited(" ")).boxed()
        }
    }
}

/// Sends panics to the log, where secrets are redacted, instead of to stderr.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = panic.payload_as_str().unwrap_or("no message");
        tracing::error!(place, panic = message, "panicked");
    }));
}

/// Wraps a writer of log lines and redacts what looks like a secret: values after names such as `token` or
/// `password` in any format, bearer tokens, private keys, passwords in URLs, long random strings.
///
/// The `fmt` layer of `tracing-subscriber` writes each event in one piece, so no value is split in two.
#[derive(Debug, Clone, Default)]
pub struct ScrubbingWriter<M>(M);

impl<M> ScrubbingWriter<M> {
    /// Wraps a writer, for example `std::io::stderr`.
    pub fn new(inner: M) -> Self {
        Self(inner)
    }
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for ScrubbingWriter<M> {
    type Writer = Scrubbed<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Scrubbed(self.0.make_writer())
    }
}

/// A writer that redacts each piece of text that it receives.
#[derive(Debug)]
pub struct Scrubbed<W>(W);

impl<W: Write> Write for Scrubbed<W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.0.write_all(scrub::text(&String::from_utf8_lossy(piece)).as_bytes())?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

/// Sets the span identified by `traceparent` and `tracestate` as the parent of this one.
pub(crate) fn continue_trace(span: &Span, headers: &HeaderMap) {
    if headers.contains_key("traceparent") {
        // An error means that nobody records traces, or that the span is disabled: nothing is lost.
        let _not_recorded = span.set_parent(TraceContextPropagator::new().extract(&Headers(headers)));
    }
}
