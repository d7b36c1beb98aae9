//! A byte stream to the provider, whose answers can be lost on purpose.

use std::{
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};

use tokio_rustls::client::TlsStream;

use super::{Endpoint, tls};

/// What a byte stream can do.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// How to reach an endpoint.
#[derive(Debug, Clone)]
pub(super) struct Dial {
    pub(super) endpoint: Endpoint,
    /// For TLS: the directory with the certificates.
    pub(super) tls_folder: Option<PathBuf>,
    /// TLS without a client certificate.
    pub(super) anonymous: bool,
    /// TCP without TLS.
    pub(super) plain: bool,
}

impl Dial {
    pub(super) async fn open(&self) -> io::Result<Box<dyn Duplex>> {
        match &self.endpoint {
            Endpoint::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            Endpoint::Tls { host, port } if self.plain => Ok(Box::new(tcp(host, *port).await?)),
            Endpoint::Tls { host, port } => Ok(Box::new(self.secured(host, *port).await?)),
        }
    }

    /// The certificate that the provider shows on a new connection; none without TLS.
    pub(super) async fn certificate(&self) -> io::Result<Option<Vec<u8>>> {
        let Endpoint::Tls { host, port } = &self.endpoint else { return Ok(None) };
        let stream = self.secured(host, *port).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        Ok(shown.map(|certificate| certificate.to_vec()))
    }

    async fn secured(&self, host: &str, port: u16) -> io::Result<TlsStream<TcpStream>> {
        let folder = self.tls_folder.as_deref().unwrap_or(Path::new("."));
        let config = tls::config(folder, self.anonymous).map_err(io::Error::other)?;
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        tokio_rustls::TlsConnector::from(config).connect(name, tcp(host, port).await?).await
    }
}

async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A stream that can be made deaf: whatever the other end sends from then on is lost.
pub(super) struct Deafable {
    pub(super) inner: Box<dyn Duplex>,
    pub(super) deaf: Arc<AtomicBool>,
}

impl AsyncRead for Deafable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let before = into.filled().len();
            ready!(Pin::new(&mut self.inner).poll_read(context, into))?;
            let end = into.filled().len() == before;
            if end || !self.deaf.load(Ordering::SeqCst) {
                return Poll::Ready(Ok(()));
            }
            into.set_filled(before);
        }
    }
}

impl AsyncWrite for Deafable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
