//! TCP with mutual TLS: every client presents a certificate signed by a trusted authority. Plain TCP is not
//! supported.

mod files;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
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
/// Concurrent handshakes. A further client takes the place of the oldest of whoever holds the most, so that connections that
/// say nothing keep nobody out.
const HANDSHAKES: usize = 64;

type Secured = Connection<TlsStream<TcpStream>>;

struct Accepting {
    listener: TcpListener,
    certificates: Arc<Certificates>,
    cut: CancellationToken,
    handshakes: FuturesUnordered<BoxFuture<'static, (u64, Option<Secured>)>>,
    /// The client of each handshake, and what ends it; the oldest first.
    places: BTreeMap<u64, (IpAddr, CancellationToken)>,
    taken: u64,
}

/// Connections with a completed handshake.
pub(super) fn over_tls(
    listener: TcpListener,
    certificates: Certificates,
    cut: CancellationToken,
) -> impl Stream<Item = io::Result<Secured>> {
    let certificates = Arc::new(certificates);
    let handshakes = FuturesUnordered::new();
    let accepting = Accepting { listener, certificates, cut, handshakes, places: BTreeMap::new(), taken: 0 };
    stream::unfold(accepting, |mut accepting| async move {
        let secured = accepting.next().await;
        Some((Ok(secured), accepting))
    })
}

impl Accepting {
    async fn next(&mut self) -> Secured {
        loop {
            tokio::select! {
                Some((number, shaken)) = self.handshakes.next(), if !self.handshakes.is_empty() => {
                    self.places.remove(&number);
                    if let Some(secured) = shaken {
                        return secured;
                    }
                }
                accepted = self.listener.accept() => match accepted {
                    Ok((io, from)) => self.begin(io, from),
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        time::sleep(AFTER_FAILURE).await;
                    }
                }
            }
        }
    }

    fn begin(&mut self, io: TcpStream, from: SocketAddr) {
        if self.places.len() >= HANDSHAKES {
            self.end_one();
        }
        self.taken += 1;
        let (number, lost) = (self.taken, CancellationToken::new());
        self.places.insert(number, (from.ip(), lost.clone()));
        let shaken = handshake(io, from, Arc::clone(&self.certificates), self.cut.clone());
        let shaken = async move { (number, lost.run_until_cancelled(shaken).await.flatten()) };
        self.handshakes.push(shaken.boxed());
    }

    /// Ends the oldest handshake of whoever holds the most.
    fn end_one(&mut self) {
        let mut held: HashMap<IpAddr, usize> = HashMap::new();
        self.places.values().for_each(|(client, _)| *held.entry(*client).or_default() += 1);
        let most = held.into_iter().max_by_key(|(_, count)| *count).map(|(client, _)| client);
        let oldest = self.places.iter().find(|(_, (client, _))| Some(*client) == most);
        if let Some((number, (client, lost))) = oldest.map(|(number, place)| (*number, place.clone())) {
            tracing::info!(peer = %client, "a TLS handshake was ended for another: too many are under way");
            lost.cancel();
            self.places.remove(&number);
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
