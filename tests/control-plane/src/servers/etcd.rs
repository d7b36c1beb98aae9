//! etcd, on Unix sockets in the private directory: no port conflicts, and nobody else can reach it.

use std::path::Path;

use super::{Layout, Server};

pub(crate) const NAME: &str = "etcd";

/// etcd insists on advertised addresses with a port. Nobody dials them: the cluster has one member, and the apiserver
/// uses the socket.
const ADVERTISED_TO_NOBODY: &str = "http://127.0.0.1:2380";

pub(crate) fn etcd(program: &Path, layout: &Layout) -> Server {
    let socket = |path: &Path| format!("unix://{}", path.display());
    Server::new(NAME, program)
        .flag("name", "etcd")
        .flag("data-dir", layout.etcd_data())
        .flag("listen-client-urls", socket(&layout.etcd_socket()))
        .flag("listen-peer-urls", socket(&layout.etcd_peer_socket()))
        .flag("advertise-client-urls", ADVERTISED_TO_NOBODY)
        .flag("initial-advertise-peer-urls", ADVERTISED_TO_NOBODY)
        .flag("initial-cluster", format!("etcd={ADVERTISED_TO_NOBODY}"))
        .flag("log-level", "warn")
        // Temporary data need not survive a power failure.
        .flag("unsafe-no-fsync", "true")
}
