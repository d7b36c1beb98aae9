//! How much is logged, and in which shape.

use super::error::{FlagError, Mistakes};

/// The finest verbosity there is.
const FINEST: u8 = 10;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Logging")]
pub(super) struct RawLogging {
    /// Shape of the log lines: text or json.
    #[arg(long, value_name = "STRING", default_value = "text")]
    pub logging_format: String,

    /// How much is logged: 0 to 3 is what operators need, 4 and 5 add details, 6 to 10 everything.
    #[arg(long, short = 'v', value_name = "INT", default_value = "0")]
    pub v: String,
}

/// Shape of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// How much is logged, and in which shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggingSettings {
    pub format: LogFormat,
    /// 0 to 10, with the meaning that the number has in Kubernetes components.
    pub verbosity: u8,
}

impl RawLogging {
    pub(super) fn resolve(&self, mistakes: &mut Mistakes) -> Option<LoggingSettings> {
        let format = mistakes.keep(match self.logging_format.as_str() {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            other => Err(FlagError::value("logging-format", other, "is unknown", "give text or json")),
        });
        let verbosity =
            mistakes.keep(self.v.parse().ok().filter(|level| *level <= FINEST).ok_or_else(|| {
                FlagError::value("v", &self.v, "is not a verbosity", format!("give 0 to {FINEST}"))
            }));
        Some(LoggingSettings { format: format?, verbosity: verbosity? })
    }
}
