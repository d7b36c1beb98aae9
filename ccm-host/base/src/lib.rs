//! What every floor of the host stands on, and what knows none of them.
//!
//! * [`clock`] is the wall clock, and [`bucket`] a token bucket.
//! * [`flag`] reads flags as Go does, and collects the mistakes of a command line.
//! * [`cidr`] parses addresses and networks as Kubernetes does, [`label`] knows its grammar of labels, and [`text`] cuts what
//!   strangers wrote.
//! * [`metric`] declares metrics, and [`trace`] the spans of a trace.
//! * [`outage`] reports a problem with the apiserver once it lasts.

pub mod bucket;
pub mod cidr;
pub mod clock;
pub mod flag;
pub mod label;
pub mod metric;
pub mod outage;
pub mod text;
pub mod trace;
