//! The provider-neutral cloud controller manager.
//!
//! * [`kube`] talks to the apiserver: client, slim shared caches, work queue, patches, events.
//! * [`cloud`] talks to providers: negotiate, batch, deadline, limit, guard, measure.
//! * [`controllers`] hold the decisions: each is observe, decide (pure), act.
//! * [`reconcile`] is shared by all controllers.
//! * [`manager`] is the process: flags, logs, serving, start order, shutdown.
//! * [`election`] decides whether this replica leads.
//! * [`shadow`] compares what is held back in shadow mode with what another controller manager does.
//! * [`outage`] tells a problem with the apiserver once it lasts.
//! * [`clock`] is the wall clock.
//! * `metric` declares metrics, and `trace` the spans of a trace.
//! * [`cidr`] parses networks as Kubernetes does, and [`text`] cuts what strangers wrote.
//! * [`assembly`] puts everything together.

pub mod assembly;
pub mod cidr;
pub mod clock;
pub mod cloud;
pub mod controllers;
pub mod election;
pub mod flag;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod kube;
pub mod manager;
mod metric;
pub mod outage;
pub mod reconcile;
pub mod shadow;
pub mod text;
mod trace;
