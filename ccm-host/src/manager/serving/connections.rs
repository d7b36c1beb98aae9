//! The port, and its connections from the handshake to their end.
//!
//! Each has its own task, so that a slow one holds up nobody; one that exceeds a time limit is closed.

use std::io::{Error, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

/// Time limit of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time limit for the head of a request, and for silence between two requests.
const HEAD: Duration = Duration::from_secs(30);
/// Maximum size of a request head: a token and a path.
const HEAD_SIZE: usize = 64 << 10;
/// Concurrent connections; further ones wait. Each takes some 50 KiB.
const CONNECTIONS: usize = 512;
/// The pause after a failed accept, for example for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections waiting to be accepted.
const BACKLOG: u32 = 128;

/// The TLS configuration of the server.
pub(crate) type Handshake = Arc<ServerConfig>;

/// The client's certificates, its own first; nobody has verified who signed them.
#[derive(Clone, Debug)]
pub(super) struct PeerCertificates(pub(super) Arc<[CertificateDer<'static>]>);

/// Binds the port. The unspecified address means all addresses, of both families if the node has both.
pub(crate) fn bind(wanted: SocketAddr, share: bool) -> Result<TcpListener, Error> {
    if wanted.ip() != IpAddr::V4(Ipv4Addr::UNSPECIFIED) {
        return bind_one(wanted, share);
    }
    match bind_one(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), wanted.port()), share) {
        Err(error) if error.kind() != ErrorKind::AddrInUse => bind_one(wanted, share),
        bound => bound,
    }
}

fn bind_one(address: SocketAddr, share: bool) -> Result<TcpListener, Error> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of a process that just ended do not block the port.
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(share)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `stop`, then finishes the requests under way.
pub(crate) async fn serve(
    listener: TcpListener,
    handshake: Handshake,
    router: Router,
    stop: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(handshake);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let Some((stream, place)) = accepted else { continue };
        let (acceptor, router, stop) = (acceptor.clone(), router.clone(), stop.clone());
        connections.spawn(async move {
            if let Err(error) = answer(stream, acceptor, router, stop).await {
                tracing::debug!(error = format!("{error:#}"), "a connection to the serving port ended");
            }
            drop(place);
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            tracing::warn!(error = %error, "a connection to the serving port could not be accepted");
            tokio::time::sleep(PAUSE).await;
            None
        }
    }
}

async fn answer(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let stream = timeout(HANDSHAKE, acceptor.accept(stream)).await??;
    let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let shown = (!shown.is_empty()).then(|| PeerCertificates(shown.into()));
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        if let Some(shown) = &shown {
            request.extensions_mut().insert(shown.clone());
        }
        router.clone().oneshot(request.map(Body::new))
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_SIZE);
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        ended = connection.as_mut() => ended?,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await?;
        }
    }
    Ok(())
}
