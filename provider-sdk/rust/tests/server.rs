//! A provider over its socket, as a host meets it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of this is a test")]

#[path = "server/calls.rs"]
mod calls;
#[path = "server/checks.rs"]
mod checks;
#[path = "server/cloud.rs"]
mod cloud;
#[path = "server/fixture.rs"]
mod fixture;
#[path = "server/health.rs"]
mod health;
#[path = "server/hook.rs"]
mod hook;
#[path = "server/introspection.rs"]
mod introspection;
#[path = "server/leadership.rs"]
mod leadership;
#[path = "server/metrics.rs"]
mod metrics;
#[path = "server/requests.rs"]
mod requests;
#[path = "server/socket.rs"]
mod socket;
#[path = "server/stop.rs"]
mod stop;
#[path = "server/telemetry.rs"]
mod telemetry;
#[path = "server/tls.rs"]
mod tls;
#[path = "server/watch.rs"]
mod watch;
