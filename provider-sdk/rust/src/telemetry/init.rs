//! The one subscriber of a sidecar.

use std::io;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use thiserror::Error;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::{EnvFilter, ParseError};
use tracing_subscriber::fmt::{self, MakeWriter, format};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use super::ScrubbingWriter;
use crate::scrub;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// The level is none.
    #[error("{level:?} is no log level; use for example info, or info,my_crate=debug")]
    Level {
        /// What was given.
        level: String,
        /// What is wrong with it.
        source: ParseError,
    },
    /// There is a global subscriber already.
    #[error("logging was set up already in this process")]
    Twice(#[from] TryInitError),
}

/// Sets up logs on stderr, traces that continue the caller's, and a panic hook that logs. Call it once, at the start.
///
/// # Errors
/// When the level is none, or logging was set up already.
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

/// The log layer alone, for a team that builds its own subscriber: this format, without secrets, to this place.
pub fn layer<S, M>(format: LogFormat, writer: M) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    M: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let lines = fmt::layer().with_writer(ScrubbingWriter::new(writer));
    match format {
        LogFormat::Json => lines.json().boxed(),
        LogFormat::Text => {
            // A value that is not quoted ends nowhere in a line of text: the field decides, not the line.
            let fields = format::debug_fn(|out, field, value| match field.name() {
                "message" => write!(out, "{value:?}"),
                secret if scrub::names_a_secret(secret) => write!(out, "{secret}={}", scrub::REDACTED),
                name => write!(out, "{name}={value:?}"),
            });
            lines.with_ansi(false).fmt_fields(fields.delimited(" ")).boxed()
        }
    }
}

/// Panics go to the log, where they are scrubbed, and not to stderr as they are.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = panic.payload_as_str().unwrap_or("no message");
        tracing::error!(place, panic = message, "panicked");
    }));
}
