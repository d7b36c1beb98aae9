//! Logs and traces of a sidecar, set up once at its start.
//!
//! In: format and level. Out: log lines on stderr with secrets redacted, and spans that continue the caller's
//! trace. Exporting traces is up to the provider; see [`layer`].

mod format;
mod init;
mod parent;

pub use format::ScrubbingWriter;
pub use init::{LogFormat, TelemetryError, init, layer};
pub(crate) use parent::continue_trace;
