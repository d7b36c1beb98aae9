//! HTTP/2 to the provider, as a service that the generated clients use.

use std::{
    io,
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderMap, Request, Response, Uri, uri::PathAndQuery};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::Mutex;
use tonic::body::Body;
use tower::Service;

use super::{
    Endpoint,
    stream::{Deafable, Dial},
};

/// How long to wait for an answer after its deadline: a later one does not honour the deadline.
pub const GRACE: Duration = Duration::from_secs(1);
/// The limit for connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// Large windows, so that large answers need not wait.
const WINDOW: u32 = 4 << 20;

/// Why there is no answer at all.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// No connection.
    #[error("no connection to {endpoint}")]
    Dial {
        /// The endpoint.
        endpoint: String,
        /// The error.
        source: io::Error,
    },
    /// Something listens that does not speak HTTP/2.
    #[error("what listens at {endpoint} does not speak HTTP/2")]
    NotHttp2 {
        /// The endpoint.
        endpoint: String,
        /// The error.
        source: hyper::Error,
    },
    /// The connection broke during the call.
    #[error("the connection broke in mid-call")]
    Broken(#[source] hyper::Error),
    /// The provider reset this call and kept the connection, as some servers do when a deadline passes.
    #[error("the provider reset the stream: {0}")]
    Reset(h2::Reason),
    /// The request cannot be sent.
    #[error("the request cannot be encoded")]
    Request(#[source] Box<tonic::Status>),
    /// No answer in time.
    #[error("no answer within {0:?}, that is {GRACE:?} after the deadline of the call")]
    NoAnswer(Duration),
}

impl WireError {
    pub(super) fn of_call(error: hyper::Error) -> Self {
        let reset = std::error::Error::source(&error)
            .and_then(|source| source.downcast_ref::<h2::Error>())
            .filter(|error| error.is_reset())
            .and_then(h2::Error::reason);
        reset.map_or(Self::Broken(error), Self::Reset)
    }
}

/// A connection that is opened when needed, and again after it was lost.
#[derive(Debug, Clone)]
pub struct Wire {
    dial: Dial,
    deaf: Arc<AtomicBool>,
    open: Arc<Mutex<Option<http2::SendRequest<Body>>>>,
}

impl Wire {
    /// A connection to this endpoint; for TLS with the certificates in the directory.
    #[must_use]
    pub fn new(endpoint: Endpoint, tls_folder: Option<PathBuf>) -> Self {
        Self::dialing(Dial { endpoint, tls_folder, anonymous: false, plain: false })
    }

    fn dialing(dial: Dial) -> Self {
        Self { dial, deaf: Arc::default(), open: Arc::default() }
    }

    /// Another connection to the same endpoint.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::dialing(self.dial.clone())
    }

    /// Another connection without a client certificate.
    #[must_use]
    pub fn anonymous(&self) -> Self {
        Self::dialing(Dial { anonymous: true, ..self.dial.clone() })
    }

    /// Another connection without TLS.
    #[must_use]
    pub fn plain(&self) -> Self {
        Self::dialing(Dial { plain: true, ..self.dial.clone() })
    }

    /// The endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.dial.endpoint
    }

    /// The certificate that the provider shows on a new connection; none without TLS.
    ///
    /// # Errors
    ///
    /// There is no connection.
    pub async fn certificate(&self) -> io::Result<Option<Vec<u8>>> {
        self.dial.certificate().await
    }

    /// Loses every answer on this connection from now on.
    pub fn lose_answers(&self) {
        self.deaf.store(true, Ordering::SeqCst);
    }

    async fn sender(&self) -> Result<http2::SendRequest<Body>, WireError> {
        let mut open = self.open.lock().await;
        if let Some(sender) = open.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let sender = self.connect().await?;
        *open = Some(sender.clone());
        Ok(sender)
    }

    async fn connect(&self) -> Result<http2::SendRequest<Body>, WireError> {
        let endpoint = || self.dial.endpoint.to_string();
        let failed = |source| WireError::Dial { endpoint: endpoint(), source };
        let dialed = tokio::time::timeout(CONNECT, self.dial.open()).await;
        let inner = dialed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)?;
        let stream = TokioIo::new(Deafable { inner, deaf: Arc::clone(&self.deaf) });
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let handshake = builder.handshake(stream).await;
        let (sender, connection) =
            handshake.map_err(|source| WireError::NotHttp2 { endpoint: endpoint(), source })?;
        // It ends with the last sender, or with the socket; running calls report why.
        tokio::spawn(async move { connection.await.unwrap_or_default() });
        Ok(sender)
    }
}

impl Service<Request<Body>> for Wire {
    type Response = Response<Incoming>;
    type Error = WireError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, WireError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let this = self.clone();
        let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let deadline = deadline(request.headers());
        Box::pin(async move {
            *request.uri_mut() = local(path);
            let exchange = async {
                let mut sender = this.sender().await?;
                sender.send_request(request).await.map_err(WireError::of_call)
            };
            match deadline {
                None => exchange.await,
                Some(deadline) => {
                    let answered = tokio::time::timeout(deadline + GRACE, exchange).await;
                    answered.unwrap_or(Err(WireError::NoAnswer(deadline + GRACE)))
                }
            }
        })
    }
}

fn local(path: PathAndQuery) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(http::uri::Scheme::HTTP);
    parts.authority = Some(http::uri::Authority::from_static("localhost"));
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).unwrap_or_default()
}

/// The value of `grpc-timeout`.
pub(super) fn deadline(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number.checked_mul(3600)?),
        "M" => Duration::from_secs(number.checked_mul(60)?),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// J1: like grpc-java.
    #[tokio::test]
    async fn a_reset_is_told_from_a_connection_that_broke() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_request, mut answer))) = connection.accept().await {
                answer.send_reset(h2::Reason::CANCEL);
            }
        });
        let mut wire = Wire::new(format!("unix://{}", path.display()).parse().unwrap(), None);
        let call = || Request::builder().uri("/a.B/C").body(Body::default()).unwrap();
        for _ in 0..2 {
            let error = wire.call(call()).await.unwrap_err();
            assert!(matches!(error, WireError::Reset(h2::Reason::CANCEL)), "{error:?}");
        }
    }
}
