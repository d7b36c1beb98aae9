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

pub mod flags;
pub mod health;
pub mod logging;
pub mod metrics;
pub mod process;
pub mod serving;
pub mod traces;
pub mod webhooks;

use axum::response::{IntoResponse as _, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::json;

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

/// The headers of answers that are true only now, and are nothing but what their type says.
fn headers() -> [(HeaderName, HeaderValue); 2] {
    [
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ]
}

/// A refusal of any page, in the form that Kubernetes clients read.
fn refusal(code: StatusCode, reason: &str, message: &str) -> Response {
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    (code, kind, headers(), format!("{status}\n")).into_response()
}
