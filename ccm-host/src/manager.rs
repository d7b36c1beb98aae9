//! The process around the controllers.
//!
//! In: the command line. Out: a running process that serves its health and metrics and ends cleanly.
//!
//! * [`flags`] turns arguments into typed [`flags::Settings`], once.
//! * [`logging`], [`metrics`], [`traces`], [`health`] and [`serving`] are what people and machines watch.
//! * [`run`] is the order of start and stop.
//!
//! What the controllers do, and how the apiserver and the providers are reached, is decided elsewhere.

pub mod build_info;
pub mod controller;
pub mod flags;
pub mod health;
pub mod logging;
pub mod metrics;
pub mod process;
pub mod process_metrics;
pub mod run;
pub mod selector;
pub mod serving;
pub mod signals;
pub mod traces;
