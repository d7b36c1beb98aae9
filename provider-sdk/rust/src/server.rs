//! Serves a provider over a Unix socket with checked peers, or over TCP with mutual TLS, until it stops.
//!
//! In: a [`Provider`] and [`ServeOptions`]. Out: the contract's services, health and, if enabled, reflection
//! and metrics. `rpc` and the provider decide the responses.

mod catch;
mod connection;
mod error;
mod health;
mod hook;
mod metrics;
mod observe;
mod peer;
mod routes;
mod run;
mod socket;
mod tls;

use std::fmt;
use std::net::SocketAddr;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tower::Layer;

pub use error::ServeError;
pub use hook::{BoxError, GrpcRequest, GrpcResponse, GrpcService, HookService};

use crate::options::{Endpoint, ServeOptions};
use crate::provider::{Provider, ProviderHandle};
use hook::Hook;
use peer::Trust;
use socket::SocketFile;
use tls::Certificates;

/// Serves a provider until SIGTERM or SIGINT, then stops gracefully; a second signal ends the process at once. Set up logging with
/// [`telemetry::init`](crate::telemetry::init).
///
/// # Errors
/// [`ServeError`] if the endpoint cannot be opened; each names the value and the remedy.
pub async fn serve(provider: Provider, options: ServeOptions) -> Result<(), ServeError> {
    Server::new(provider, options).run().await
}

/// A provider and how it is served, before the endpoint is opened.
#[must_use]
pub struct Server {
    provider: Provider,
    options: ServeOptions,
    hook: Option<Hook>,
    signals: bool,
}

impl Server {
    /// A server that stops at SIGTERM and SIGINT, and by [`ProviderHandle::stop`].
    pub fn new(provider: Provider, options: ServeOptions) -> Self {
        Self { provider, options, hook: None, signals: true }
    }

    /// Wraps all services in a layer of HTTP requests and responses, **for test doubles and proxies**. The
    /// layer sees encoded bytes, so it can hang, drop a response after the work was done (an error or a body
    /// that fails), return a status without the contract's details, or too much. It also wraps health and
    /// reflection; the peer has already been checked. A provider does not need it.
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<GrpcService> + Send + Sync + 'static,
        L::Service: HookService,
    {
        self.hook = Some(Hook::new(layer, self.hook));
        self
    }

    /// Ignores signals: only [`ProviderHandle::stop`] stops the server. For tests, and for processes that do
    /// more.
    pub fn without_signals(mut self) -> Self {
        self.signals = false;
        self
    }

    /// Opens the endpoint. Callers can connect from now on; they get responses once the server runs.
    ///
    /// # Errors
    /// [`ServeError`] names the problem and the remedy.
    pub async fn bind(self) -> Result<BoundServer, ServeError> {
        let Self { provider, options, hook, signals } = self;
        let (listener, trust, endpoint) = open(&options).await?;
        let metrics = metrics::bind(options.metrics_address).await?;
        Ok(BoundServer { provider, options, hook, signals, listener, trust, endpoint, metrics })
    }

    /// Opens the endpoint and serves until it is stopped.
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub async fn run(self) -> Result<(), ServeError> {
        self.bind().await?.run().await
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Server")
            .field("provider", &self.provider)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Serves streams within the process instead of an endpoint, until [`ProviderHandle::stop`]; **for
    /// simulations**: callers are trusted, and signals and metrics are ignored.
    ///
    /// # Errors
    /// [`ServeError`] if serving itself fails.
    pub async fn run_over<I>(self, streams: impl Stream<Item = I> + Send) -> Result<(), ServeError>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Box::pin(run::run_over(self, streams)).await
    }
}

enum Listener {
    Unix(UnixListener, SocketFile),
    Tls(TcpListener, Certificates),
}

async fn open(options: &ServeOptions) -> Result<(Listener, Trust, Endpoint), ServeError> {
    match &options.endpoint {
        Endpoint::Unix(path) => {
            if options.tls_cert_file.is_some() {
                return Err(ServeError::TlsOverUnix { path: path.clone() });
            }
            let (listener, file) = socket::open(path).await?;
            let trust = Trust::uids(&options.allowed_peer_uids);
            Ok((Listener::Unix(listener, file), trust, options.endpoint.clone()))
        }
        Endpoint::Tcp(address) => {
            let certificates = Certificates::from_options(options)?;
            let fault = |source| ServeError::Listen { endpoint: options.endpoint.clone(), source };
            let listener = TcpListener::bind(address).await.map_err(fault)?;
            let endpoint = Endpoint::Tcp(listener.local_addr().map_err(fault)?);
            Ok((Listener::Tls(listener, certificates), Trust::Certificate, endpoint))
        }
    }
}

/// A provider whose endpoint is open.
#[must_use]
pub struct BoundServer {
    provider: Provider,
    options: ServeOptions,
    hook: Option<Hook>,
    signals: bool,
    listener: Listener,
    trust: Trust,
    endpoint: Endpoint,
    metrics: Option<TcpListener>,
}

impl BoundServer {
    /// The address it listens on, with the real port if port 0 was requested.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The address of the metrics, if served.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Controls the provider while it is served.
    #[must_use]
    pub fn handle(&self) -> ProviderHandle {
        self.provider.handle()
    }

    /// Serves until it is stopped. Then health turns to not serving, streams end, running mutations get
    /// `shutdown_grace` to finish, and the socket's file is removed.
    ///
    /// # Errors
    /// [`ServeError`] if serving itself fails.
    pub async fn run(self) -> Result<(), ServeError> {
        // Boxed: the future is large, and callers move it around.
        Box::pin(run::run(self)).await
    }
}

impl fmt::Debug for BoundServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BoundServer")
            .field("provider", &self.provider)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}
