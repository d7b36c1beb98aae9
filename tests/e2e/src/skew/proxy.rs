//! The proxy itself: each HTTP/2 connection of the host becomes one to the provider.

use std::{path::Path, path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, client::conn::http2::SendRequest, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::{
    net::{UnixListener, UnixStream},
    task::JoinHandle,
};

use super::{
    Skew, Versions,
    frames::{Passing, Translate, Translated},
    versions::Direction,
};

/// A running proxy; dropping it ends it and cuts its connections.
#[derive(Debug)]
pub struct Proxy {
    skew: Arc<Mutex<Skew>>,
    accepting: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// What a connection needs.
#[derive(Clone)]
struct Between {
    skew: Arc<Mutex<Skew>>,
    versions: Arc<Versions>,
    upstream: Arc<PathBuf>,
}

impl Proxy {
    /// Takes the place of the provider that listens at `socket`, or of a former proxy there; the provider's own socket
    /// is moved aside.
    pub fn in_front_of(socket: &Path, skew: Skew) -> Result<Self> {
        let aside = socket.with_extension("behind");
        if aside.exists() {
            std::fs::remove_file(socket)?;
        } else {
            std::fs::rename(socket, &aside)?;
        }
        Self::start(socket, &aside, skew)
    }

    /// Listens at `socket` for calls to the provider at `upstream`.
    fn start(socket: &Path, upstream: &Path, skew: Skew) -> Result<Self> {
        let listener =
            UnixListener::bind(socket).with_context(|| format!("cannot listen at {}", socket.display()))?;
        std::fs::set_permissions(socket, std::os::unix::fs::PermissionsExt::from_mode(0o660))?;
        let skew = Arc::new(Mutex::new(skew));
        let between = Between {
            skew: Arc::clone(&skew),
            versions: Arc::new(Versions::of_the_baseline()?),
            upstream: Arc::new(upstream.to_owned()),
        };
        let accepting = tokio::spawn(async move {
            // Owns the connections, so that they end with it.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(between.clone(), stream));
            }
        });
        Ok(Self { skew, accepting })
    }

    /// Sets the skew from the next message on.
    pub fn set(&self, skew: Skew) {
        *self.skew.lock() = skew;
    }
}

async fn serve(between: Between, stream: UnixStream) {
    let served = async {
        let upstream = UnixStream::connect(between.upstream.as_path()).await?;
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(upstream)).await?;
        let service = service_fn(|request| pass(between.clone(), sender.clone(), request));
        let server =
            http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            ended = server => ended?,
            ended = connection => ended?,
        }
        anyhow::Ok(())
    };
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection ended");
    }
}

async fn pass(
    between: Between,
    mut upstream: SendRequest<Passing>,
    request: Request<Incoming>,
) -> Result<Response<Passing>> {
    let path = request.uri().path().to_owned();
    let request = request.map(|body| between.through(&path, Direction::Request, body));
    let answer = upstream.send_request(request).await?;
    Ok(answer.map(|body| between.through(&path, Direction::Answer, body)))
}

impl Between {
    fn through(&self, path: &str, direction: Direction, body: Incoming) -> Passing {
        let (between, path) = (self.clone(), path.to_owned());
        let translate: Translate = Box::new(move |message| {
            let skew = *between.skew.lock();
            between.versions.translated(skew, &path, direction, message)
        });
        Translated::new(body, translate).boxed_unsync()
    }
}
