//! What a method knows about the call that it serves.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::proto::ClusterRef;

/// The caller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// A process on the other side of the Unix socket, as reported by the kernel.
    Unix {
        /// Its user id.
        uid: u32,
        /// Its group id.
        gid: u32,
        /// Its process id; meaningless across pid namespaces.
        pid: Option<i32>,
    },
    /// A client whose certificate is signed by a trusted authority.
    Tls {
        /// Its remote address.
        address: Option<std::net::SocketAddr>,
        /// Its end-entity certificate in DER form.
        certificate: Option<std::sync::Arc<[u8]>>,
    },
    /// Unknown: a call within the process, as in tests.
    Unknown,
}

/// What a method knows about the call that it serves, apart from the request.
#[derive(Debug, Clone)]
pub struct CallContext {
    pub(crate) service: &'static str,
    pub(crate) method: &'static str,
    pub(crate) request_id: String,
    pub(crate) deadline: Option<Instant>,
    pub(crate) cluster: Option<ClusterRef>,
    pub(crate) peer: Peer,
    pub(crate) traceparent: Option<String>,
    pub(crate) span: Span,
    pub(crate) give_up: CancellationToken,
    pub(crate) caller_gone: CancellationToken,
}

impl CallContext {
    /// A context without caller, deadline and cluster, for calling a trait's method in a provider's tests.
    #[must_use]
    pub fn detached(service: &'static str, method: &'static str) -> Self {
        Self {
            service,
            method,
            request_id: uuid::Uuid::new_v4().to_string(),
            deadline: None,
            cluster: None,
            peer: Peer::Unknown,
            traceparent: None,
            span: Span::none(),
            give_up: CancellationToken::new(),
            caller_gone: CancellationToken::new(),
        }
    }

    /// Fully qualified name of the service, for example `ccm.cloudprovider.v1alpha1.Instances`.
    #[must_use]
    pub fn service(&self) -> &'static str {
        self.service
    }

    /// Name of the RPC, for example `BatchGetInstances`.
    #[must_use]
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// The caller's `x-request-id`, or a random one; this call's log lines carry it too.
    #[must_use]
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    /// When the caller stops waiting. `None` for streams, and for a caller that set no deadline.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The time left until the caller's deadline, zero after it: the limit for the cloud calls of a read. A mutation goes on when its
    /// caller has gone: give its cloud calls limits of their own.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// The cluster on whose behalf the host calls. Always present if the request has a cluster.
    #[must_use]
    pub fn cluster(&self) -> Option<&ClusterRef> {
        self.cluster.as_ref()
    }

    /// Uid of that cluster, or empty. Resources are tagged with it and found by it.
    #[must_use]
    pub fn cluster_uid(&self) -> &str {
        self.cluster.as_ref().map_or("", |cluster| cluster.uid.as_str())
    }

    /// The caller.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The caller's W3C `traceparent`, to pass on to a cloud that accepts it.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.traceparent.as_deref()
    }

    /// The span of this call. It is already entered; pass it to tasks that the method spawns.
    #[must_use]
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Fires when the method should stop. For a read: the caller is gone or the process is stopping. For a
    /// mutation: when its leader's term ends, after 10 minutes, or when the time for a graceful stop is over;
    /// never because the caller is gone. It tells work that goes on after an answer with `in_progress`, too.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.give_up
    }

    /// Fires when nobody waits for the response any more. For information only: a mutation continues.
    #[must_use]
    pub fn caller_gone(&self) -> &CancellationToken {
        &self.caller_gone
    }
}
