//! One GET over loopback HTTP/1.1.

use anyhow::{Context as _, Result};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Status and body.
pub(crate) async fn get(address: &str, path: &str) -> Result<(u16, String)> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Empty<hyper::body::Bytes>>(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = http::Request::get(path).header("host", address).body(Empty::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    driver.abort();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
