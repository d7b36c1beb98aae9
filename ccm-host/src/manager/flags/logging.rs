//! Logging: verbosity and format.

use crate::flag::Wrong;

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
