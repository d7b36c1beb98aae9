//! The connection between two processes, which can stall and break.

use std::{io, sync::Arc};

use apiserver::{Endpoint, Lost};
use futures::{TryStreamExt as _, future::BoxFuture, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Bytes;
use kube::client::Body;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream},
    sync::watch,
};
use tower::BoxError;

type Answer = UnsyncBoxBody<Bytes, BoxError>;

/// The maximum number of bytes in flight in a stream.
const BUFFER: usize = 64 << 10;

/// A line between two processes. All clones are the same line.
#[derive(Debug, Clone)]
pub struct Line(Arc<watch::Sender<Known>>);

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    held: bool,
    breaks: u64,
    closed: bool,
}

/// A connection over a line: it ends when the line breaks.
#[derive(Debug, Clone)]
pub struct Connection {
    known: watch::Receiver<Known>,
    breaks: u64,
}

impl Default for Line {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Known::default())))
    }
}

impl Line {
    /// Stalls the line; what is sent meanwhile arrives later.
    pub fn hold(&self, held: bool) {
        self.0.send_modify(|known| known.held = held);
    }

    /// Breaks all connections; new ones may be made.
    pub fn break_connections(&self) {
        self.0.send_modify(|known| known.breaks += 1);
    }

    /// Breaks all connections, and refuses new ones: the process behind it is dead.
    pub fn close(&self) {
        self.0
            .send_modify(|known| (known.closed, known.held, known.breaks) = (true, false, known.breaks + 1));
    }

    /// A new connection, unless the line is closed.
    ///
    /// # Errors
    /// The line is closed.
    pub fn connect(&self) -> Result<Connection, Lost> {
        let known = self.0.subscribe();
        let Known { closed, breaks, .. } = *known.borrow();
        if closed { Err(Lost::Refused) } else { Ok(Connection { known, breaks }) }
    }
}

impl Connection {
    /// Waits while the line is stalled.
    async fn pass(&mut self) -> Result<(), Lost> {
        let breaks = self.breaks;
        match self.known.wait_for(|known| known.breaks != breaks || !known.held).await {
            Ok(known) if known.breaks == breaks => Ok(()),
            _ => Err(Lost::Reset),
        }
    }

    /// Returns when the connection is broken.
    async fn broken(&mut self) {
        let breaks = self.breaks;
        let _gone_is_broken = self.known.wait_for(|known| known.breaks != breaks).await;
    }
}

/// The apiserver at the other end of a line.
#[derive(Debug, Clone)]
pub struct Distant {
    line: Line,
    apiserver: Endpoint,
}

impl Distant {
    /// This apiserver behind this line.
    pub fn new(line: Line, apiserver: Endpoint) -> Self {
        Self { line, apiserver }
    }
}

impl tower::Service<Request<Body>> for Distant {
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Answer>, BoxError>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), BoxError>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (line, mut apiserver) = (self.line.clone(), self.apiserver.clone());
        Box::pin(async move {
            let mut way = line.connect()?;
            way.pass().await?;
            let mut watched = way.clone();
            let answer = tokio::select! {
                biased;
                () = watched.broken() => return Err(Lost::Reset.into()),
                answer = apiserver.call(request) => answer?,
            };
            way.pass().await?;
            Ok(answer.map(|body| behind(way, body)))
        })
    }
}

/// A body whose frames come over the connection.
fn behind<B>(way: Connection, body: B) -> Answer
where
    B: http_body::Body<Data = Bytes, Error = Lost> + Send + Unpin + 'static,
{
    let frames = stream::unfold(Some((way, body)), |state| async move {
        let (mut way, mut body) = state?;
        let mut watched = way.clone();
        let next = tokio::select! {
            biased;
            () = watched.broken() => Some(Err(Lost::Reset)),
            frame = body.frame() => frame,
        };
        let frame: Frame<_> = match next? {
            Ok(frame) => frame,
            Err(lost) => return Some((Err(lost), None)),
        };
        match way.pass().await {
            Ok(()) => Some((Ok(frame), Some((way, body)))),
            Err(lost) => Some((Err(lost), None)),
        }
    });
    StreamBody::new(frames.map_err(BoxError::from)).boxed_unsync()
}

/// Both ends of a stream over two lines.
pub fn stream(near: &Connection, far: &Connection) -> (DuplexStream, DuplexStream) {
    let (one, here) = tokio::io::duplex(BUFFER);
    let (there, other) = tokio::io::duplex(BUFFER);
    let (here_in, here_out) = tokio::io::split(here);
    let (there_in, there_out) = tokio::io::split(there);
    let ways = [near.clone(), far.clone()];
    let (to, fro) = (pump(here_in, there_out, ways.clone()), pump(there_in, here_out, ways.clone()));
    let [mut near, mut far] = ways;
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = near.broken() => {}
            () = far.broken() => {}
            _ended = async { tokio::try_join!(to, fro) } => {}
        }
    });
    (one, other)
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut ways: [Connection; 2],
) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut buffer).await?;
        for way in &mut ways {
            way.pass().await.map_err(io::Error::other)?;
        }
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}
