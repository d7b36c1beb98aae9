//! One connection to a provider, checked before a byte is sent.
//!
//! In: an endpoint. Out: a channel over exactly one socket, and a token that is cancelled when that socket is lost. The
//! channel never reconnects by itself, so the host never calls a process that has not been through the handshake.

use std::{
    fs::Metadata,
    io::{self, ErrorKind},
    net::SocketAddr,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use http::Uri;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_util::{io::InspectReader, sync::CancellationToken};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint as Transport, Identity};

use crate::{ProviderConfig, settings::Endpoint};
use ccm_base::text::with_sources;
use ccm_kube::{Backoff, jittered};

const AGENT: &str = concat!("ccm-host/", env!("CARGO_PKG_VERSION"));
/// Covers the whole connection setup, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For all addresses of a name; TLS has the rest.
const TCP_TIMEOUT: Duration = Duration::from_secs(4);
/// From one ping over TCP to the next, and how long its answer may take.
const PING: Duration = Duration::from_secs(15);
const PONG: Duration = Duration::from_secs(10);
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
#[error("{why}")]
pub(super) struct ConnectError {
    why: String,
    /// Trying again costs next to nothing.
    pub(super) is_cheap: bool,
}

impl From<String> for ConnectError {
    fn from(why: String) -> Self {
        Self { why, is_cheap: false }
    }
}

/// The pause before the next attempt to connect, which grows with each; `random` in 0..1 takes away up to half of it.
pub(super) fn pause(backoff: Backoff, failures: &mut u32, random: f64, cap: Duration) -> Duration {
    let pause = backoff.delay(*failures).min(cap);
    *failures = failures.saturating_add(1);
    jittered(pause, random)
}

pub(super) async fn connect(config: &ProviderConfig) -> Result<Connection, ConnectError> {
    match tokio::time::timeout(CONNECT_TIMEOUT, dial(config)).await {
        Ok(result) => result,
        Err(_) => {
            Err(format!("no connection to {} within {CONNECT_TIMEOUT:?}", config.settings.endpoint).into())
        }
    }
}

async fn dial(config: &ProviderConfig) -> Result<Connection, ConnectError> {
    let endpoint = &config.settings.endpoint;
    let failed = |error: io::Error| {
        let why = format!("nothing listens at {endpoint}: {error}");
        ConnectError { why, is_cheap: true }
    };
    if let Some(crate::Dialer(dial)) = &config.dialer {
        let stream = dial(endpoint).map_err(failed)?;
        return over(stream, Transport::from_static("http://localhost"), endpoint).await;
    }
    match endpoint {
        Endpoint::Unix(path) => {
            let trusted = Trusted::new(&config.settings.allowed_uids);
            check_socket(path, &trusted).await?;
            let stream = UnixStream::connect(path).await.map_err(failed)?;
            let peer = stream.peer_cred().map_err(failed)?.uid();
            check_peer(path, peer, &trusted)?;
            over(stream, Transport::from_static("http://localhost"), endpoint).await
        }
        Endpoint::Https { host, port, tls } => {
            let transport = mutual_tls(host, *port, tls).await?;
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let addresses = tokio::net::lookup_host((bare, *port)).await.map_err(failed)?.collect();
            let stream = first_of(addresses).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            // A machine that loses its power says nothing.
            let transport = transport
                .http2_keep_alive_interval(PING)
                .keep_alive_timeout(PONG)
                .keep_alive_while_idle(true);
            over(stream, transport, endpoint).await
        }
    }
}

/// A stream to the first address that takes it. Each has its share of the time: one that answers nothing must not keep
/// the host from the others of its name.
async fn first_of(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let share = TCP_TIMEOUT / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in addresses {
        failed = match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, format!("{address} did not answer")),
        };
    }
    Err(failed)
}

/// A channel over exactly this stream.
async fn over<S>(stream: S, transport: Transport, endpoint: &Endpoint) -> Result<Connection, ConnectError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |error: tonic::transport::Error| {
        ConnectError::from(format!("no connection to {endpoint}: {}", with_sources(&error)))
    };
    let lost = CancellationToken::new();
    // The transport drops the stream, and the guard with it, when the connection is lost.
    let gone = lost.clone().drop_guard();
    let stream = InspectReader::new(stream, move |_: &[u8]| _ = &gone);
    let once = Mutex::new(Some(TokioIo::new(stream)));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = once.lock().take();
        async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
    });
    let transport = transport
        .user_agent(AGENT)
        .map_err(failed)?
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let channel = transport.connect_with_connector(connector).await.map_err(failed)?;
    Ok(Connection { channel, lost })
}

/// Mutual TLS. The files are read on each connection, so that rotated certificates take effect.
async fn mutual_tls(host: &str, port: u16, dir: &Path) -> Result<Transport, ConnectError> {
    let ca = read(dir.join("ca.crt")).await?;
    let certificate = read(dir.join("tls.crt")).await?;
    let key = read(dir.join("tls.key")).await?;
    let unusable = |problem: String| unusable(dir, &problem);
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
        Ok(bytes) if bytes.is_empty() => Err(unusable(&path, "it is empty")),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(unusable(&path, &error.to_string())),
    }
}

fn unusable(path: &Path, problem: &str) -> ConnectError {
    format!("cannot use {}: {problem}", path.display()).into()
}

const SOCKET_MODE: u32 = 0o660;
const DIR_MODE: u32 = 0o750;
const WRITABLE_BY_OTHERS: u32 = 0o002;
const WRITABLE_BY_GROUP: u32 = 0o020;
const PERMISSIONS: u32 = 0o7777;

/// Users that may own a socket and answer on it.
#[derive(Debug)]
struct Trusted<'a> {
    own: u32,
    allowed: &'a [u32],
}

impl<'a> Trusted<'a> {
    fn new(allowed: &'a [u32]) -> Self {
        Self { own: rustix::process::geteuid().as_raw(), allowed }
    }

    fn check(&self, uid: u32, what: impl FnOnce() -> String) -> Result<(), String> {
        if uid == self.own || uid == 0 || self.allowed.contains(&uid) {
            return Ok(());
        }
        let own = self.own;
        Err(format!("{} uid {uid}, which is neither this process' own ({own}) nor root nor allowed", what()))
    }
}

/// Checks who could have created the socket, and who could replace it.
async fn check_socket(path: &Path, trusted: &Trusted<'_>) -> Result<(), ConnectError> {
    let unreadable = |path: &Path, error: &io::Error| format!("cannot inspect {}: {error}", path.display());
    let at = path.display();
    // A symlink could be swapped between this check and the connection.
    let socket = tokio::fs::symlink_metadata(path).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            let why = format!("no socket at {at}: the provider is not running yet, or listens elsewhere");
            ConnectError { why, is_cheap: true }
        }
        _ => unreadable(path, &error).into(),
    })?;
    if !socket.file_type().is_socket() {
        return Err(format!("{at} is not a socket").into());
    }
    safe("socket", path, &socket, WRITABLE_BY_OTHERS, SOCKET_MODE, trusted)?;
    let parent = path.parent().unwrap_or(Path::new("/"));
    let dir = tokio::fs::metadata(parent).await.map_err(|error| unreadable(parent, &error))?;
    safe("directory", parent, &dir, WRITABLE_BY_OTHERS | WRITABLE_BY_GROUP, DIR_MODE, trusted)?;
    Ok(())
}

/// Checks the peer's uid: the listening process may not run as the owner of the file.
fn check_peer(path: &Path, uid: u32, trusted: &Trusted<'_>) -> Result<(), String> {
    trusted.check(uid, || format!("the process that answers at {} runs as", path.display()))
}

fn safe(
    what: &str,
    path: &Path,
    seen: &Metadata,
    forbidden: u32,
    wanted: u32,
    trusted: &Trusted<'_>,
) -> Result<(), String> {
    let (at, mode) = (path.display(), seen.mode() & PERMISSIONS);
    if mode & forbidden != 0 {
        return Err(format!(
            "{what} {at} has mode {mode:04o}, so that others could take its place: make it {wanted:04o} or stricter"
        ));
    }
    trusted.check(seen.uid(), || format!("{what} {at} belongs to"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D27.
    #[test]
    fn pauses_double_up_to_the_longest_and_start_anew() {
        let second = Duration::from_secs(1);
        let (backoff, mut failures) = (Backoff { base: second / 10, max: 10 * second }, 0);
        let mut pause = |random, cap| pause(backoff, &mut failures, random, cap);
        let pauses: Vec<_> = (0..9).map(|_| pause(0.0, Duration::MAX).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(pause(0.0, second), second, "what is cheap to try is tried more often");
        failures = 0;
        assert_eq!(super::pause(backoff, &mut failures, 1.0, Duration::MAX), second / 20);
    }

    #[test]
    fn this_user_root_and_who_is_allowed_are_trusted() {
        let trusted = Trusted { own: 1000, allowed: &[2000] };
        for (uid, want) in [(1000, true), (0, true), (2000, true), (2001, false), (65_534, false)] {
            assert_eq!(check_peer(Path::new("/s"), uid, &trusted).is_ok(), want, "{uid}");
        }
    }

    #[tokio::test]
    async fn a_socket_of_a_stranger_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let seen = std::fs::metadata(&path).unwrap();
        if seen.uid() == 0 {
            // Everybody trusts what root owns; only root can give a file away.
            std::os::unix::fs::chown(&path, Some(4242), None).unwrap();
        }
        let owner = std::fs::metadata(&path).unwrap().uid();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o660)).unwrap();
        let stranger = Trusted { own: owner + 1, allowed: &[] };
        let error = check_socket(&path, &stranger).await.unwrap_err();
        let own = owner + 1;
        let want = format!(
            "socket {} belongs to uid {owner}, which is neither this process' own ({own}) nor root nor allowed",
            path.display()
        );
        assert_eq!(error.to_string(), want);
        let allowed = [owner];
        check_socket(&path, &Trusted { own: owner + 1, allowed: &allowed }).await.unwrap();
    }

    /// One that takes no connection, as a machine without power, keeps nobody from the next.
    #[tokio::test]
    async fn every_address_of_a_name_is_tried() {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let full = socket.listen(1).unwrap();
        let full_at = full.local_addr().unwrap();
        let mut held = Vec::new();
        while let Ok(taken) =
            tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(full_at)).await
        {
            held.push(taken.unwrap());
        }
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let open = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open_at = open.local_addr().unwrap();
        let stream = first_of(vec![full_at, closed, open_at]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), open_at);
        assert!(first_of(vec![closed]).await.is_err() && first_of(vec![]).await.is_err());
    }
}
