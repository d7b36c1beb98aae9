//! The port, and its connections from the handshake to their end.
//!
//! Each has its own task, so that a slow one delays no other; one that exceeds a time limit is closed. Anybody who reaches
//! the port may open connections, and the kubelet's probes come by the same one: a new connection never waits for a place,
//! but takes that of the oldest of whoever holds the most.

use std::collections::{BTreeMap, HashMap};
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
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
/// Concurrent connections. Each takes some 50 KiB.
const CONNECTIONS: usize = 512;
/// Concurrent connections of one peer: many times what a monitoring system holds.
pub(super) const OF_ONE_PEER: usize = 32;
/// The pause after a failed accept, for example for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections waiting to be accepted.
const BACKLOG: u32 = 128;

/// The TLS configuration of the server.
pub(crate) type Handshake = Arc<ServerConfig>;

/// HTTP/1.1, and no session is resumed: it would keep the old certificate, and sessions take memory.
pub(crate) fn plain_sessions(config: &mut ServerConfig) {
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}

/// The client's certificates, its own first; their signatures are not verified yet.
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
    if address.is_ipv6() && address.ip().is_unspecified() {
        // Whatever the node's default is.
        rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
    }
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
    of_one_peer: usize,
    stop: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(handshake);
    let places = ConnectionPlaces::new(of_one_peer);
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(error = %error, "a connection to the serving port could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let place = Place::take(&places, peer.ip());
        let (acceptor, router, stop) = (acceptor.clone(), router.clone(), stop.clone());
        connections.spawn(async move {
            let answered = place.lost.run_until_cancelled(answer(stream, acceptor, router, stop)).await;
            match answered {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    tracing::debug!(%peer, error = format!("{error:#}"), "a connection to the serving port ended");
                }
                None => tracing::debug!(%peer, "a connection to the serving port made room for another"),
            }
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// Who holds how many connections, of which one peer may have only some.
#[derive(Debug)]
struct ConnectionPlaces {
    of_one_peer: usize,
    /// What ends each connection, by peer, the oldest first.
    by_peer: HashMap<IpAddr, BTreeMap<u64, CancellationToken>>,
    taken: u64,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
struct Place {
    places: Arc<Mutex<ConnectionPlaces>>,
    peer: IpAddr,
    number: u64,
    /// Another connection has it.
    lost: CancellationToken,
}

impl ConnectionPlaces {
    fn new(of_one_peer: usize) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { of_one_peer, by_peer: HashMap::new(), taken: 0 }))
    }

    /// Who loses a connection to a new one of this peer.
    fn loser(&self, peer: IpAddr) -> Option<IpAddr> {
        if self.by_peer.get(&peer).is_some_and(|its| its.len() >= self.of_one_peer) {
            return Some(peer);
        }
        let all: usize = self.by_peer.values().map(BTreeMap::len).sum();
        let most = || self.by_peer.iter().max_by_key(|(_, its)| its.len()).map(|(most, _)| *most);
        if all >= CONNECTIONS { most() } else { None }
    }

    fn end_oldest(&mut self, peer: IpAddr) {
        let oldest = self.by_peer.get(&peer).and_then(|its| its.keys().next().copied());
        if let Some(ended) = oldest.and_then(|number| self.leave(peer, number)) {
            ended.cancel();
        }
    }

    fn leave(&mut self, peer: IpAddr, number: u64) -> Option<CancellationToken> {
        let its = self.by_peer.get_mut(&peer)?;
        let left = its.remove(&number);
        if its.is_empty() {
            self.by_peer.remove(&peer);
        }
        left
    }
}

impl Place {
    /// Takes a place, if need be from another connection.
    fn take(places: &Arc<Mutex<ConnectionPlaces>>, peer: IpAddr) -> Self {
        let (peer, lost) = (network(peer), CancellationToken::new());
        let mut held = places.lock();
        if let Some(loser) = held.loser(peer) {
            held.end_oldest(loser);
        }
        held.taken += 1;
        let number = held.taken;
        held.by_peer.entry(peer).or_default().insert(number, lost.clone());
        Self { places: Arc::clone(places), peer, number, lost }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().leave(self.peer, self.number);
    }
}

/// Whoever has an IPv6 address may have all 2^64 of its network.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, number).into()
    }

    fn lost(places: &[Place]) -> Vec<usize> {
        places.iter().enumerate().filter(|(_, place)| place.lost.is_cancelled()).map(|(at, _)| at).collect()
    }

    #[test]
    fn a_peer_ends_its_own_connections_first() {
        let places = ConnectionPlaces::new(OF_ONE_PEER);
        let mut greedy: Vec<_> = (0..OF_ONE_PEER).map(|_| Place::take(&places, peer(1))).collect();
        let other = Place::take(&places, peer(2));
        assert_eq!(lost(&greedy), [0; 0]);
        greedy.push(Place::take(&places, peer(1)));
        greedy.push(Place::take(&places, peer(1)));
        assert_eq!((lost(&greedy), other.lost.is_cancelled()), (vec![0, 1], false));
        drop(greedy.pop());
        greedy.push(Place::take(&places, peer(1)));
        assert_eq!(lost(&greedy), [0, 1], "one has left by itself");
    }

    #[test]
    fn nobody_waits_for_whoever_holds_the_most() {
        let places = ConnectionPlaces::new(OF_ONE_PEER);
        let kubelet = Place::take(&places, peer(0));
        let many: Vec<_> = (0..CONNECTIONS - 1)
            .map(|number| Place::take(&places, peer(1 + u8::try_from(number % 17).unwrap())))
            .collect();
        assert_eq!(lost(&many), [0; 0], "all places are taken, none too many");
        let probe = Place::take(&places, peer(0));
        assert_eq!(lost(&many).len(), 1);
        assert!(!kubelet.lost.is_cancelled() && !probe.lost.is_cancelled());
        drop((many, kubelet, probe));
        assert!(places.lock().by_peer.is_empty());
    }

    #[test]
    fn a_network_is_one_peer() {
        let parsed = |text: &str| network(text.parse().unwrap());
        assert_eq!(parsed("fd00::1:2:3:4"), parsed("fd00::4:3:2:1"));
        assert_ne!(parsed("fd00:0:0:1::1"), parsed("fd00::1"));
        assert_eq!(parsed("::ffff:10.0.0.1"), peer(1));
    }
}
