//! The honest mock on the wire: what every later test leans on.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod balancers;
mod instances;
mod rest;
mod routes;
#[path = "../support/mod.rs"]
mod support;
mod watch;
