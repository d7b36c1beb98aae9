//! The provider-neutral cloud controller manager.
//!
//! * [`kube`] is the one way to the apiserver: client, slim shared caches, work queue, patches, events.
//! * [`cloud`] is the one way to a provider: negotiate, batch, deadline, limit, guard, measure.
//! * [`controllers`] hold what is decided: each is observe, decide (pure), act.
//! * [`reconcile`] is what all controllers do alike.
//! * [`manager`] holds the process: flags, logs, serving, start order, shutdown.
//! * [`election`] tells whether this replica leads.
//! * [`clock`] tells the time that other processes share.
//! * `trace` names the spans of a trace.
//! * [`cidr`] reads networks as Kubernetes does.
//! * [`assembly`] puts them together.

pub mod assembly;
mod buckets;
pub mod cidr;
pub mod clock;
pub mod cloud;
pub mod controllers;
pub mod election;
pub mod flag;
pub mod kube;
pub mod manager;
pub mod reconcile;
mod trace;
