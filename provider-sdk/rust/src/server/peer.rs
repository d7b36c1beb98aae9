//! Who may call. The first check of every call.

use futures::future::{Either, ready};
use tower::{ServiceExt as _, service_fn};

use super::hook::{GrpcRequest, GrpcService};
use crate::ProviderError;
use crate::context::Peer;

/// Whom the endpoint trusts.
#[derive(Debug, Clone)]
pub(super) enum Trust {
    /// Processes of these users.
    Uids(Vec<u32>),
    /// Any client with a certificate, which the handshake has verified.
    Certificate,
    /// Any caller: there is no endpoint.
    WithinTheProcess,
}

impl Trust {
    /// These users, or by default the process's own user and root.
    pub(super) fn uids(allowed: &[u32]) -> Self {
        if allowed.is_empty() {
            return Self::Uids(vec![rustix::process::geteuid().as_raw(), 0]);
        }
        Self::Uids(allowed.to_vec())
    }

    fn refuses(&self, peer: Option<&Peer>) -> Option<ProviderError> {
        match (self, peer) {
            (Self::Uids(allowed), Some(Peer::Unix { uid, .. })) if allowed.contains(uid) => None,
            (Self::Uids(_), Some(Peer::Unix { uid, .. })) => {
                let why = format!("uid {uid} may not call; see --allowed-peer-uids of the provider");
                Some(ProviderError::peer_not_trusted(&why))
            }
            (Self::Certificate, Some(Peer::Tls { certificate: Some(_), .. })) => None,
            (Self::WithinTheProcess, _) => None,
            _ => Some(ProviderError::peer_not_trusted("the peer is unknown")),
        }
    }
}

/// The services for trusted peers alone.
pub(super) fn trusted(services: GrpcService, trust: Trust) -> GrpcService {
    GrpcService::new(service_fn(move |request: GrpcRequest| {
        match trust.refuses(request.extensions().get()) {
            None => Either::Left(services.clone().oneshot(request)),
            Some(error) => {
                tracing::warn!(peer = ?request.extensions().get::<Peer>(), "a peer that is not trusted was refused");
                Either::Right(ready(Ok(error.to_status().into_http())))
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_uid_and_root_unless_others_are_named() {
        let own = rustix::process::geteuid().as_raw();
        let unix = |uid| Peer::Unix { uid, gid: 0, pid: None };
        let rows: [(&[u32], u32, bool); 5] =
            [(&[], own, true), (&[], 0, true), (&[], own + 7, false), (&[5], 5, true), (&[5], own, false)];
        for (allowed, uid, fine) in rows {
            let refused = Trust::uids(allowed).refuses(Some(&unix(uid)));
            assert_eq!(refused.is_none(), fine, "{allowed:?} {uid}");
        }
    }

    #[test]
    fn who_is_not_known_is_not_trusted() {
        let nameless = Peer::Tls { address: None, certificate: None };
        for trust in [Trust::uids(&[]), Trust::Certificate] {
            for peer in [None, Some(&Peer::Unknown), Some(&nameless)] {
                assert!(trust.refuses(peer).is_some(), "{trust:?} {peer:?}");
            }
        }
        assert!(Trust::Certificate.refuses(Some(&Peer::Unix { uid: 0, gid: 0, pid: None })).is_some());
    }
}
