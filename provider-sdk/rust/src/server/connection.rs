//! Connections: accepted, identified by their peer, and closed on demand.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use futures::stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixListener;
use tokio::time;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use crate::context::Peer;

/// The wait after a failed accept (no file descriptors left, for example), to avoid spinning.
pub(super) const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// How long a client may take to say that it speaks HTTP/2. Later, pings ask whether it is there.
const PREFACE_WITHIN: Duration = Duration::from_secs(10);
/// The bytes by which HTTP/2 begins.
const PREFACE: usize = 24;

/// A connection with its peer, which ends at once when closed, and soon if it says nothing.
pub(super) struct Connection<I> {
    io: I,
    peer: Peer,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    read: usize,
    silent: Pin<Box<time::Sleep>>,
}

impl<I> Connection<I> {
    pub(super) fn new(io: I, peer: Peer, cut: &CancellationToken) -> Self {
        let cut = Box::pin(cut.clone().cancelled_owned());
        Self { io, peer, cut, read: 0, silent: Box::pin(time::sleep(PREFACE_WITHIN)) }
    }

    fn poll_cut(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionReset.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl<I> Connected for Connection<I> {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Connection<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_cut(cx)?;
        let before = into.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, into);
        if polled.is_pending() && self.read < PREFACE && self.silent.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        ready!(polled)?;
        self.read = self.read.saturating_add(into.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Connection<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_cut(cx)?;
        Pin::new(&mut self.io).poll_write(cx, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_cut(cx)?;
        Pin::new(&mut self.io).poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_cut(cx)?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_cut(cx)?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Connections over a Unix socket, with the peer as reported by the kernel.
pub(super) fn over_unix(
    listener: UnixListener,
    cut: CancellationToken,
) -> impl Stream<Item = io::Result<Connection<tokio::net::UnixStream>>> {
    stream::unfold((listener, cut), |(listener, cut)| async move {
        let accepted = listener.accept().await.and_then(|(io, _)| {
            let peer = io.peer_cred()?;
            let peer = Peer::Unix { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() };
            Ok(Connection::new(io, peer, &cut))
        });
        if let Err(error) = &accepted {
            tracing::warn!(%error, "a connection could not be accepted");
            time::sleep(AFTER_FAILURE).await;
        }
        Some((accepted, (listener, cut)))
    })
}
