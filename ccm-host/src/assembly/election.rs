//! Competing for the Lease, if the flags say so.

use ::kube::Client;

use crate::{
    election::{self, Leadership, Lock, Metrics},
    manager::process::Process,
};

/// Begins to compete. Losing the Lease ends the process.
pub(super) fn start(process: &Process, client: &Client) -> Leadership {
    let Some(settings) = process.settings().election.clone() else { return Leadership::always() };
    let (leading, leadership) = Leadership::standby();
    let lock = Lock::new(client.clone(), settings.clone(), identity());
    let metrics = process.metrics().register(Metrics::register);
    process.spawn_support("leader-election", |stop| election::run(lock, settings, metrics, leading, stop));
    leadership
}

/// As upstream's: the host for people, and what no other process has.
fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}_{}", uuid::Uuid::new_v4())
}
