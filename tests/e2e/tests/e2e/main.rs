//! The shipped binaries on a real etcd and kube-apiserver, under the shipped rights, with the provider over its socket.

mod bad_input;
mod guard;
mod load_balancers;
mod nodes;
mod reflection;
mod restarts;
mod skew;

use test_cluster::Options;

/// Times short enough for a test, spelled as an operator would.
fn quick() -> Options {
    Options::default()
        .host_flag("--node-monitor-period=500ms")
        .host_flag("--node-deletion-grace=0s")
        .host_flag("--node-deletion-confirmations=2")
        .host_flag("--node-status-update-frequency=2s")
}
