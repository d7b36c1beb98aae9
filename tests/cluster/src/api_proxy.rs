//! An apiserver in trouble: a loopback proxy in front of the real one that can answer in its place.
//!
//! In: plain HTTP requests of a host that has no credentials. Out: the same requests as the host's user, or the
//! answer of an apiserver that is overloaded, broken or silent.

use std::{
    convert::Infallible,
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::Result;
use futures::future::{self, Either};
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Bytes, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use serde_json::json;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use crate::{Cluster, HOST_GROUPS, HOST_USER};

/// What happens to every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The apiserver answers.
    None,
    /// 429, to be retried after a second.
    TooManyRequests,
    /// 500.
    InternalError,
    /// No answer; the connection is closed when this ends.
    Silence,
    /// Watches break as soon as they are open; all other requests are answered.
    BrokenWatches,
}

/// The running proxy; ends when dropped.
#[derive(Debug)]
pub struct ApiProxy {
    way: Way,
    kubeconfig: PathBuf,
    task: JoinHandle<()>,
}

#[derive(Debug, Clone)]
struct Way {
    trouble: watch::Sender<Trouble>,
    met: Arc<AtomicUsize>,
}

type Answer = Response<UnsyncBoxBody<Bytes, anyhow::Error>>;

impl ApiProxy {
    /// Starts in front of this cluster's apiserver, without trouble.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let here = json!({ "server": format!("http://{}", listener.local_addr()?) });
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "proxy", "cluster": here }],
            "contexts": [{ "name": "proxy", "context": { "cluster": "proxy", "user": "" } }],
            "current-context": "proxy",
        });
        let path = cluster.folder().join("api-proxy.kubeconfig");
        fs::write(&path, kubeconfig.to_string())?;
        let way = Way { trouble: watch::Sender::new(Trouble::None), met: Arc::default() };
        let client = cluster.control_plane.client_for(HOST_USER, &HOST_GROUPS)?;
        let task = tokio::spawn(accept(listener, client, way.clone()));
        Ok(Self { way, kubeconfig: path, task })
    }

    /// The flag that sends the host through the proxy.
    pub fn host_flag(&self) -> String {
        format!("--kubeconfig={}", self.kubeconfig.display())
    }

    /// Sets the trouble from now on, for open watches as well, which break at each change.
    pub fn set(&self, trouble: Trouble) {
        self.way.met.store(0, Ordering::SeqCst);
        self.way.trouble.send_replace(trouble);
    }

    /// The number of requests since the trouble was set.
    pub fn met(&self) -> usize {
        self.way.met.load(Ordering::SeqCst)
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, client: Client, way: Way) {
    // Owns the connections, so that they end with the proxy.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        // An error means that a peer has already disconnected.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (client, way) = (client.clone(), way.clone());
        connections.spawn(async move {
            let service = service_fn(|request| answer(request, client.clone(), way.clone()));
            // Ends with an error if an answer was broken on purpose.
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn answer(request: Request<Incoming>, client: Client, way: Way) -> Result<Answer> {
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let mut changes = way.trouble.subscribe();
    let trouble = *changes.borrow_and_update();
    let meets = trouble != Trouble::None && (trouble != Trouble::BrokenWatches || is_watch);
    if meets {
        way.met.fetch_add(1, Ordering::SeqCst);
    }
    match trouble {
        Trouble::TooManyRequests => Ok(refused(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests")?),
        Trouble::InternalError => Ok(refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")?),
        Trouble::Silence => {
            changes.changed().await?;
            anyhow::bail!("the apiserver was silent")
        }
        Trouble::None | Trouble::BrokenWatches => {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes().to_vec();
            let answer = client.send(Request::from_parts(head, Body::from(body))).await?;
            let breaks = async move {
                if trouble != Trouble::BrokenWatches {
                    drop(changes.changed().await);
                }
            };
            Ok(answer.map(|body| match is_watch {
                true => until(body, breaks),
                false => body.map_err(anyhow::Error::from).boxed_unsync(),
            }))
        }
    }
}

fn refused(code: StatusCode, reason: &str) -> Result<Answer> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code.as_u16(), "reason": reason, "message": "in trouble",
    });
    let body = Full::from(status.to_string()).map_err(|never: Infallible| match never {}).boxed_unsync();
    let answer = Response::builder().status(code).header(header::CONTENT_TYPE, "application/json");
    Ok(answer.header(header::RETRY_AFTER, "1").body(body)?)
}

/// The frames of a body, and an error as soon as it breaks.
fn until(
    body: Body,
    breaks: impl Future<Output = ()> + Send + 'static,
) -> UnsyncBoxBody<Bytes, anyhow::Error> {
    let frames = futures::stream::unfold(Some((body, Box::pin(breaks))), async |state| {
        let (mut body, mut breaks) = state?;
        let next: Option<Result<Frame<Bytes>>> = match future::select(breaks.as_mut(), body.frame()).await {
            Either::Left(_) => return Some((Err(anyhow::anyhow!("the watch was cut")), None)),
            Either::Right((frame, _)) => frame.map(|frame| frame.map_err(anyhow::Error::from)),
        };
        Some((next?, Some((body, breaks))))
    });
    StreamBody::new(frames).boxed_unsync()
}
