//! Logs and spans.
//!
//! In: [`LoggingSettings`]. Out: log lines on standard error, as text or JSON, each with the fields of the surrounding
//! spans of `ccm_base::trace`, which show from verbosity 4 on. A trace collector gets them in any case.
//!
//! **No secret is ever logged**: no token, no key, no object of kind Secret, no header, no whole request or response.
//! Types that hold one do not implement `Debug`, or leave it out there.

use std::io::IsTerminal as _;

use tracing::Subscriber;
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use super::traces::Traces;
use ccm_base::{flag::Wrong, trace::OURS};

/// The highest verbosity.
const FINEST: u8 = 10;

/// One field per flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Logging")]
#[group(skip)]
pub struct LoggingSettings {
    /// Log format: text or json.
    #[arg(long, value_name = "STRING", default_value = "text", value_parser = format)]
    pub logging_format: LogFormat,

    /// Log verbosity: 0 to 3 for operators, 4 and 5 for details, 6 to 10 for everything.
    #[arg(long, short = 'v', value_name = "INT", default_value = "0", value_parser = verbosity)]
    pub v: u8,
}

/// Shape of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

fn format(text: &str) -> Result<LogFormat, Wrong> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(Wrong::new("is unknown", "give text or json")),
    }
}

fn verbosity(text: &str) -> Result<u8, Wrong> {
    let wrong = || Wrong::new("is not a verbosity", format!("give 0 to {FINEST}"));
    text.parse().ok().filter(|level| *level <= FINEST).ok_or_else(wrong)
}

/// Sets up logs and spans for the whole process; call once, before anything is logged.
pub fn init(settings: &LoggingSettings, traces: Option<&Traces>) -> Result<(), TryInitError> {
    let colours = std::io::stderr().is_terminal();
    subscriber(settings, traces, std::io::stderr, colours).try_init()
}

/// The subscriber, with any writer.
pub(super) fn subscriber<W>(
    settings: &LoggingSettings,
    traces: Option<&Traces>,
    writer: W,
    colours: bool,
) -> impl Subscriber + Send + Sync + use<W>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::registry()
        .with(lines(settings.logging_format, writer, colours).with_filter(filter(settings.v)))
        .with(traces.map(Traces::layer))
}

fn lines<S, W>(format: LogFormat, writer: W, colours: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // A line that cannot be written is lost: telling so on stderr panics where stderr is what fails.
    let layer = tracing_subscriber::fmt::layer().log_internal_errors(false).with_writer(writer);
    match format {
        LogFormat::Text => layer.with_ansi(colours).boxed(),
        LogFormat::Json => {
            layer.json().flatten_event(true).with_current_span(false).with_span_list(true).boxed()
        }
    }
}

/// Verbosity as operators know it: 0 to 3 is the steady state, 4 adds details, 6 adds every step; the libraries
/// underneath follow two steps later, since they log far more.
fn filter(verbosity: u8) -> EnvFilter {
    let (ours, libraries) = match verbosity {
        0..=3 => (LevelFilter::INFO, LevelFilter::WARN),
        4 | 5 => (LevelFilter::DEBUG, LevelFilter::WARN),
        6 | 7 => (LevelFilter::TRACE, LevelFilter::INFO),
        8 | 9 => (LevelFilter::TRACE, LevelFilter::DEBUG),
        _ => (LevelFilter::TRACE, LevelFilter::TRACE),
    };
    // Its warning about an answer that it cannot decode shows the whole answer, which may be a Secret.
    let client = format!("kube_client::client=error,kube_client::client::builder={libraries}");
    let directive = format!("{libraries},{client},{OURS}={ours}");
    EnvFilter::builder().parse_lossy(directive)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, verbosity: u8, work: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let settings = LoggingSettings { logging_format: format, v: verbosity };
        let subscriber = subscriber(&settings, None, move || writer.clone(), false);
        tracing::subscriber::with_default(subscriber, work);
        let bytes = lines.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn an_answer_that_the_client_cannot_decode_is_never_shown() {
        for verbosity in [0, 10] {
            let warn = || tracing::warn!(target: "kube_client::client", "{{\"data\": \"secret\"}}");
            assert_eq!(logged(LogFormat::Text, verbosity, warn), "");
        }
    }

    fn say_everything() {
        let span = tracing::info_span!("reconcile", node = "worker-1");
        let _entered = span.enter();
        tracing::info!(count = 3, "steady");
        tracing::debug!(target: "ccm_kube::cache", "detail");
        tracing::trace!("step");
        tracing::info!(target: "hyper", "library steady");
        tracing::debug!(target: "hyper", "library detail");
    }

    #[test]
    fn verbosity_chooses_lines() {
        let rows: [(u8, &[&str]); 6] = [
            (0, &["steady"]),
            (3, &["steady"]),
            (4, &["steady", "detail"]),
            (6, &["steady", "detail", "step", "library steady"]),
            (8, &["steady", "detail", "step", "library steady", "library detail"]),
            (10, &["steady", "detail", "step", "library steady", "library detail"]),
        ];
        for (verbosity, expected) in rows {
            let text = logged(LogFormat::Json, verbosity, say_everything);
            let messages: Vec<String> = text
                .lines()
                .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
                .map(|line| line["message"].as_str().unwrap().to_owned())
                .collect();
            assert_eq!(messages, expected, "verbosity {verbosity}");
        }
    }

    #[test]
    fn lines_carry_the_object() {
        let text = logged(LogFormat::Text, 0, say_everything);
        assert!(text.contains("steady") && text.contains("worker-1") && text.contains("count=3"), "{text}");
        let json = logged(LogFormat::Json, 0, say_everything);
        let line: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
        assert_eq!(line["spans"][0]["node"], "worker-1");
        assert_eq!(line["count"], 3);
    }
}
