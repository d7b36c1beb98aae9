//! Logs and traces of a sidecar, set up once at its start.
//!
//! In: format and level. Out: log lines on stderr without anything that looks like a secret, and spans whose parent is
//! the caller's. Sending traces somewhere is the team's to add; see [`layer`].

mod format;
mod init;
mod parent;

pub use format::ScrubbingWriter;
pub use init::{LogFormat, TelemetryError, init, layer};
pub(crate) use parent::continue_trace;
