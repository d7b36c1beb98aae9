//! The process around the controllers.
//!
//! In: the command line. Out: a running process that serves its health and metrics and ends cleanly.
//!
//! * [`flags`] turns arguments into typed [`flags::Settings`], once.
//! * [`logging`], [`metrics`], [`traces`], [`health`] and [`serving`] are for people and monitoring.
//! * [`webhooks`] are for the apiserver.
//! * [`process`] is the order of start and stop.
//!
//! The controllers, and the access to the apiserver and the providers, are elsewhere.

mod answer;
pub mod flags;
pub mod health;
pub mod logging;
pub mod metrics;
pub mod process;
pub mod serving;
pub mod traces;
pub mod webhooks;

/// The version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, if the build set `CCM_BUILD_COMMIT`.
pub const COMMIT: &str = match option_env!("CCM_BUILD_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// Everything about the build, on one line.
fn build() -> String {
    format!("version=v{VERSION} commit={COMMIT} os={} arch={}", std::env::consts::OS, std::env::consts::ARCH)
}
