//! TCP with mutual TLS: every client presents a certificate signed by a trusted authority. Plain TCP is not
//! supported.

mod files;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, FuturesUnordered};
use futures::{FutureExt as _, Stream, StreamExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::{task, time};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

pub(super) use files::Certificates;

use super::connection::{AFTER_FAILURE, Connection};
use crate::context::Peer;

/// A silent client occupies a handshake slot for this long.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Concurrent handshakes; other clients wait to be accepted.
const HANDSHAKES: usize = 64;

type Secured = Connection<TlsStream<TcpStream>>;

struct Accepting {
    listener: TcpListener,
    certificates: Arc<Certificates>,
    cut: CancellationToken,
    handshakes: FuturesUnordered<BoxFuture<'static, Option<Secured>>>,
}

/// Connections with a completed handshake.
pub(super) fn over_tls(
    listener: TcpListener,
    certificates: Certificates,
    cut: CancellationToken,
) -> impl Stream<Item = io::Result<Secured>> {
    let certificates = Arc::new(certificates);
    let accepting = Accepting { listener, certificates, cut, handshakes: FuturesUnordered::new() };
    stream::unfold(accepting, |mut accepting| async move {
        let secured = accepting.next().await;
        Some((Ok(secured), accepting))
    })
}

impl Accepting {
    async fn next(&mut self) -> Secured {
        loop {
            tokio::select! {
                Some(shaken) = self.handshakes.next(), if !self.handshakes.is_empty() => {
                    if let Some(secured) = shaken {
                        return secured;
                    }
                }
                accepted = self.listener.accept(), if self.handshakes.len() < HANDSHAKES => match accepted {
                    Ok((io, from)) => {
                        let (certificates, cut) = (Arc::clone(&self.certificates), self.cut.clone());
                        self.handshakes.push(handshake(io, from, certificates, cut).boxed());
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        time::sleep(AFTER_FAILURE).await;
                    }
                }
            }
        }
    }
}

async fn handshake(
    io: TcpStream,
    from: SocketAddr,
    certificates: Arc<Certificates>,
    cut: CancellationToken,
) -> Option<Secured> {
    let shaken = async {
        io.set_nodelay(true)?;
        // Reads files that have changed.
        let reader = Arc::clone(&certificates);
        let config = task::spawn_blocking(move || reader.current()).await.map_err(io::Error::other)?;
        let secured = TlsAcceptor::from(config).accept(io).await?;
        // The handshake requires one.
        let shown = secured.get_ref().1.peer_certificates().and_then(<[_]>::first);
        shown.map_or(Ok(()), |certificate| certificates.trust(certificate))?;
        Ok::<_, io::Error>(secured)
    };
    match time::timeout(HANDSHAKE_WITHIN, shaken).await {
        Ok(Ok(secured)) => {
            let certificate = secured.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let certificate = certificate.map(|certificate| Arc::from(certificate.as_ref()));
            let peer = Peer::Tls { address: Some(from), certificate };
            Some(Connection::new(secured, peer, &cut))
        }
        Ok(Err(error)) => {
            tracing::info!(%error, peer = %from, "a TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::info!(peer = %from, "a TLS handshake took too long");
            None
        }
    }
}
