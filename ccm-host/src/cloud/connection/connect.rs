//! One connection to a provider, checked before a byte is sent.
//!
//! In: an endpoint. Out: a channel over exactly one socket, and a token that is cancelled when that socket is lost. The
//! channel never reconnects by itself, so the host never calls a process that has not been through the handshake.

use std::{
    fmt,
    io::{self, IoSlice},
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint as Transport, Identity};

use super::socket::{self, SocketError};
use crate::cloud::{
    ProviderConfig,
    settings::{Endpoint, TlsDir},
    status::with_sources,
};

/// Covers the whole connection setup, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Saves large messages from waiting for many small windows.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// A session or watch that lasted this long did not fail at its start.
pub(super) const LIVED: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) channel: Channel,
    /// Cancelled when the socket is lost.
    pub(super) lost: CancellationToken,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("nothing listens at {endpoint}: {source}")]
    Dial { endpoint: String, source: std::io::Error },
    #[error("no connection to {endpoint} within {CONNECT_TIMEOUT:?}")]
    Timeout { endpoint: String },
    #[error("cannot use {}: {problem}", path.display())]
    Tls { path: PathBuf, problem: String },
    #[error("no connection to {endpoint}: {problem}")]
    Transport { endpoint: String, problem: String },
}

impl ConnectError {
    /// Whether trying again costs next to nothing.
    pub(super) fn is_cheap(&self) -> bool {
        matches!(self, Self::Socket(SocketError::NoSocket(_)) | Self::Dial { .. })
    }
}

/// The pause before the next attempt to connect: doubles from the first pause to the longest.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }

    /// The next pause; `random` in 0..1 takes away up to half of it.
    pub(super) fn pause(&mut self, random: f64, cap: Duration) -> Duration {
        let pause = self.next.min(cap);
        self.next = (self.next * 2).min(self.longest);
        pause.mul_f64(1.0 - random.clamp(0.0, 1.0) / 2.0)
    }
}

/// Connects to an endpoint without a socket: for a provider that a simulation runs in the same process.
#[derive(Clone)]
pub struct Dialer(Arc<Dial>);

type Dial = dyn Fn(&Endpoint) -> Result<DuplexStream, std::io::Error> + Send + Sync;

impl Dialer {
    /// `dial` returns the client end of a new stream to the listener at the endpoint.
    pub fn new(
        dial: impl Fn(&Endpoint) -> Result<DuplexStream, std::io::Error> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(dial))
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Dialer").finish_non_exhaustive()
    }
}

pub(super) async fn connect(config: &ProviderConfig, agent: &str) -> Result<Connection, ConnectError> {
    match tokio::time::timeout(CONNECT_TIMEOUT, dial(config, agent)).await {
        Ok(result) => result,
        Err(_) => Err(ConnectError::Timeout { endpoint: config.endpoint.to_string() }),
    }
}

async fn dial(config: &ProviderConfig, agent: &str) -> Result<Connection, ConnectError> {
    let endpoint = &config.endpoint;
    let failed = |source| ConnectError::Dial { endpoint: endpoint.to_string(), source };
    if let Some(Dialer(dial)) = &config.dialer {
        let stream = dial(endpoint).map_err(failed)?;
        return over(stream, Transport::from_static("http://localhost"), endpoint, agent).await;
    }
    match endpoint {
        Endpoint::Unix(path) => {
            let trusted = socket::Trusted::new(&config.allowed_uids);
            socket::check(path, &trusted).await?;
            let stream = UnixStream::connect(path).await.map_err(failed)?;
            let peer = stream.peer_cred().map_err(failed)?.uid();
            socket::check_peer(path, peer, &trusted)?;
            over(stream, Transport::from_static("http://localhost"), endpoint, agent).await
        }
        Endpoint::Https { host, port, tls } => {
            let transport = mutual_tls(host, *port, tls).await?;
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let stream = TcpStream::connect((bare, *port)).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            over(stream, transport, endpoint, agent).await
        }
    }
}

/// A channel over exactly this stream.
async fn over<S>(
    stream: S,
    transport: Transport,
    endpoint: &Endpoint,
    agent: &str,
) -> Result<Connection, ConnectError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |error: &tonic::transport::Error| ConnectError::Transport {
        endpoint: endpoint.to_string(),
        problem: with_sources(error),
    };
    let lost = CancellationToken::new();
    let once = Mutex::new(Some(TokioIo::new(Watched::new(stream, lost.clone()))));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = once.lock().take();
        async move { stream.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotConnected)) }
    });
    let transport = transport
        .user_agent(agent.to_owned())
        .map_err(|error| failed(&error))?
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let channel = transport.connect_with_connector(connector).await.map_err(|error| failed(&error))?;
    Ok(Connection { channel, lost })
}

/// Mutual TLS. The files are read on each connection, so that rotated certificates take effect.
async fn mutual_tls(host: &str, port: u16, dir: &TlsDir) -> Result<Transport, ConnectError> {
    let ca = read(dir.ca()).await?;
    let certificate = read(dir.certificate()).await?;
    let key = read(dir.key()).await?;
    let unusable = |problem: String| ConnectError::Tls { path: dir.0.clone(), problem };
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(ca))
        .identity(Identity::from_pem(certificate, key))
        .domain_name(host.trim_start_matches('[').trim_end_matches(']'));
    Transport::from_shared(format!("https://{host}:{port}"))
        .map_err(|error| unusable(error.to_string()))?
        .tls_config(config)
        .map_err(|error| unusable(with_sources(&error)))
}

async fn read(path: PathBuf) -> Result<Vec<u8>, ConnectError> {
    match tokio::fs::read(&path).await {
        Ok(bytes) if bytes.is_empty() => Err(ConnectError::Tls { path, problem: "it is empty".to_owned() }),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(ConnectError::Tls { path, problem: error.to_string() }),
    }
}

/// Signals when it is dropped: the transport drops the stream when the connection is lost.
struct Watched<S> {
    stream: S,
    _gone: DropGuard,
}

impl<S> Watched<S> {
    fn new(stream: S, lost: CancellationToken) -> Self {
        Self { stream, _gone: lost.drop_guard() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D27.
    #[test]
    fn pauses_double_up_to_the_longest_and_start_anew() {
        let second = Duration::from_secs(1);
        let mut backoff = Backoff::new(second / 10, 10 * second);
        let pauses: Vec<_> = (0..9).map(|_| backoff.pause(0.0, Duration::MAX).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(backoff.pause(0.0, second), second, "what is cheap to try is tried more often");
        backoff.reset();
        assert_eq!(backoff.pause(1.0, Duration::MAX), second / 20);
    }
}
