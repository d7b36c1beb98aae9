//! Starts leader election, if the flags enable it.

use ::kube::Client;

use crate::{
    election::{self, Leadership, Lock, Metrics},
    kube::ClientOptions,
    manager::{health::Probe, process::Process},
};

/// Options for a client that renews the Lease even when the host is busy: its own connection, no limiter, no retries
/// that would hide how long a renewal took and, as upstream, time for a second attempt.
pub(super) fn client_options(process: &Process, options: &ClientOptions) -> Option<ClientOptions> {
    let settings = &process.settings().election;
    let request_timeout = settings.leader_elect_renew_deadline / 2;
    (settings.leader_elect && !process.settings().shadow.shadow).then(|| ClientOptions {
        qps: 0.0,
        retries: 0,
        request_timeout,
        ..options.clone()
    })
}

/// Starts competing, except in shadow mode. Losing the Lease ends the process.
pub(super) fn start(process: &Process, client: &Client) -> Leadership {
    let settings = process.settings().election.clone();
    if process.settings().shadow.shadow {
        return Leadership::shadow();
    }
    if !settings.leader_elect {
        return Leadership::always();
    }
    let (leading, leadership) = Leadership::standby();
    let lock = Lock::new(client.clone(), settings.clone(), identity());
    let health = lock.health();
    process.checks().add(Probe::Ready, "lease", move || health.check());
    let metrics = process.metrics().register(Metrics::register);
    let ends = (leading, leadership.clone());
    process.spawn_support("leader-election", |stop| election::run(lock, settings, metrics, ends, stop));
    leadership
}

/// Like upstream's: the host name for people, and a unique part.
fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}_{}", uuid::Uuid::new_v4())
}
