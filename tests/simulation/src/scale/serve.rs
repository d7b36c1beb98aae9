//! The apiserver in memory, over HTTP on loopback.

use std::{io, net::SocketAddr};

use anyhow::Result;
use apiserver::ApiServer;
use http_body_util::BodyExt as _;
use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use kube::client::Body;
use tokio::{net::TcpListener, task::JoinHandle};
use tower::Service as _;

/// Serves until the handle is aborted.
pub(super) async fn serve(server: &ApiServer) -> Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let endpoint = server.endpoint("host");
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _slower_is_fine = stream.set_nodelay(true);
            let endpoint = endpoint.clone();
            let answer = service_fn(move |request: Request<Incoming>| {
                let mut endpoint = endpoint.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let body = Body::from(body.collect().await.map_err(io::Error::other)?.to_bytes());
                    endpoint.call(Request::from_parts(parts, body)).await.map_err(io::Error::other)
                }
            });
            tokio::spawn(async move {
                let builder = Builder::new(TokioExecutor::new());
                let _the_host_went = builder.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    });
    Ok((address, serving))
}
