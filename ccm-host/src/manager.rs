//! The process around the controllers.
//!
//! In: the command line. Out: a running process that serves its health and metrics and ends cleanly.
//!
//! * [`flags`] turns arguments into typed [`flags::Settings`], once.
//! * [`logging`], [`metrics`], [`traces`], [`health`] and [`serving`] are for people and monitoring.
//! * [`webhooks`] are for the apiserver.
//! * [`run`] is the order of start and stop.
//!
//! The controllers, and the access to the apiserver and the providers, are elsewhere.

pub mod build_info;
pub mod flags;
pub mod health;
pub mod logging;
pub mod metrics;
pub mod process;
pub mod process_metrics;
pub mod run;
pub mod serving;
pub mod traces;
pub mod webhooks;
