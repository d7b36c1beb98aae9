//! The host's serving port, through a port-forward or directly.
//!
//! In: a path. Out: a document, or a sentence that says why there is none.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use ccm_state::API_VERSION;
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Bytes, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use rustls_pki_types::ServerName;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{
    cli::Way,
    credentials::{self, Credentials},
    leader,
};

/// What the host's own certificate is for.
const OWN_NAME: &str = "localhost";
const CONNECT: Duration = Duration::from_secs(10);

/// There is no such object: exit code 4.
#[derive(Debug)]
pub(crate) struct NotFound(pub(crate) String);

impl std::fmt::Display for NotFound {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for NotFound {}

/// What the host answered.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A connection to the host.
pub(crate) struct Door {
    sender: SendRequest<Empty<Bytes>>,
    credentials: Credentials,
    /// For people: who was asked.
    whom: String,
    patience: Duration,
}

impl Door {
    pub(crate) async fn open(way: &Way) -> Result<Self> {
        let patience = Duration::from_secs(way.request_timeout);
        if let Some(server) = &way.server {
            let (host, port) = address(server)?;
            let credentials = Credentials::new(way, false).await?;
            let connect = TcpStream::connect((host.trim_matches(['[', ']']), port));
            let stream = timeout(CONNECT, connect)
                .await
                .map_err(|_| anyhow!("no answer within {CONNECT:?}"))
                .and_then(|connected| Ok(connected?))
                .with_context(|| format!("cannot connect to --server={server}"))?;
            let name = way.tls_server_name.clone().unwrap_or(host);
            let sender = greet(stream, &credentials, &name).await.with_context(|| {
                format!("no TLS with --server={server}: --certificate-authority and --tls-server-name must fit its certificate")
            })?;
            return Ok(Self { sender, credentials, whom: server.clone(), patience });
        }
        let client = Client::try_from(credentials::config(way).await?)?;
        let leader = leader::find(&client, way).await?;
        let whom = format!("pod {}/{} port {}", way.namespace, leader.pod, leader.port);
        let mut forward = Api::<Pod>::namespaced(client, &way.namespace)
            .portforward(&leader.pod, &[leader.port])
            .await
            .with_context(|| {
                format!("no port-forward to {whom}: you need the right to create pods/portforward")
            })?;
        let stream = forward.take_stream(leader.port).context("the port-forward has no stream")?;
        // The apiserver and the kubelet vouch for the pod.
        let credentials = Credentials::new(way, true).await?;
        let name = way.tls_server_name.as_deref().unwrap_or(OWN_NAME);
        let sender =
            greet(stream, &credentials, name).await.with_context(|| format!("no TLS with {whom}"))?;
        // The streams end with it; it ends with the process.
        tokio::spawn(async move {
            let _ = forward.join().await;
        });
        Ok(Self { sender, credentials, whom, patience })
    }

    /// The document at this path.
    pub(crate) async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T> {
        let answer = self.fetch(path).await?;
        self.read(answer, path)
    }

    /// Asks the host to do something; returns the document with which it answers.
    pub(crate) async fn post<T: DeserializeOwned>(&mut self, path: &str) -> Result<T> {
        let answer = self.in_time(Method::POST, path).await?;
        self.read(answer, path)
    }

    fn read<T: DeserializeOwned>(&self, answer: Answer, path: &str) -> Result<T> {
        let Answer { status, body, .. } = answer;
        if status != StatusCode::OK {
            return Err(self.refused(status, &body, path));
        }
        let document: Value = serde_json::from_slice(&body)
            .with_context(|| format!("{} answers {path} with something that is not JSON", self.whom))?;
        let version = document["apiVersion"].as_str().unwrap_or_default();
        if !ccm_state::is_known(version) {
            bail!(
                "{} answers in {version:?}, and this ccmctl reads {API_VERSION:?}: use the ccmctl of the host's release",
                self.whom
            );
        }
        serde_json::from_value(document)
            .with_context(|| format!("{} answers {path} in another shape", self.whom))
    }

    /// Whatever is at this path.
    pub(crate) async fn fetch(&mut self, path: &str) -> Result<Answer> {
        self.in_time(Method::GET, path).await
    }

    async fn in_time(&mut self, method: Method, path: &str) -> Result<Answer> {
        timeout(self.patience, self.ask(method, path)).await.map_err(|_| {
            anyhow!("{} did not answer within {:?}: see --request-timeout", self.whom, self.patience)
        })?
    }

    async fn ask(&mut self, method: Method, path: &str) -> Result<Answer> {
        let request = Request::builder().method(method).uri(path).header(header::HOST, OWN_NAME);
        let mut request = request.header(header::CONTENT_TYPE, "application/json").body(Empty::new())?;
        if let Some(authorization) = &self.credentials.authorization {
            request.headers_mut().insert(header::AUTHORIZATION, authorization.clone());
        }
        self.sender.ready().await.with_context(|| format!("{} closed the connection", self.whom))?;
        let response = self
            .sender
            .send_request(request)
            .await
            .with_context(|| format!("{} did not answer", self.whom))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.context("the answer broke off")?.to_bytes();
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    fn refused(&self, status: StatusCode, body: &[u8], path: &str) -> anyhow::Error {
        let told: Option<Value> = serde_json::from_slice(body).ok();
        let message = told.as_ref().and_then(|told| told["message"].as_str()).map(str::to_owned);
        match (status, message) {
            (StatusCode::NOT_FOUND, Some(message)) => NotFound(message).into(),
            (StatusCode::NOT_FOUND, None) => {
                anyhow!("{} has no {path}: this host is older than ccmctl", self.whom)
            }
            (_, Some(message)) => anyhow!("{} refuses {path} ({status}): {message}", self.whom),
            (_, None) => anyhow!("{} refuses {path} ({status})", self.whom),
        }
    }
}

/// Host and port of an `https` URL.
fn address(server: &str) -> Result<(String, u16)> {
    let uri: Uri = server
        .parse()
        .with_context(|| format!("--server={server:?} is not a URL: give https://HOST:PORT"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(host)) => Ok((host.to_owned(), uri.port_u16().unwrap_or(443))),
        _ => bail!("--server={server:?} is not an https URL: give https://HOST:PORT"),
    }
}

async fn greet(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    credentials: &Credentials,
    name: &str,
) -> Result<SendRequest<Empty<Bytes>>> {
    let name = name.trim_matches(['[', ']']).to_owned();
    let name =
        ServerName::try_from(name.clone()).with_context(|| format!("{name:?} is not a server name"))?;
    let connector = TlsConnector::from(credentials.tls.clone());
    let stream =
        timeout(CONNECT, connector.connect(name, stream)).await.context("no handshake in time")??;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// The last part of the path that asks about volumes.
pub(crate) fn volumes(plugin: &str, ids: &[String]) -> String {
    let ids: String = ids.iter().map(|id| format!("&id={}", escaped(id))).collect();
    format!("volumes?plugin={}{ids}", escaped(plugin))
}

/// The last part of the path that asks about one cluster.
pub(crate) fn cluster(name: &str) -> String {
    format!("clusters/{}", escaped(name))
}

fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_an_https_url() {
        let rows = [
            ("https://127.0.0.1:10258", Some(("127.0.0.1", 10258))),
            ("https://[::1]:10258", Some(("[::1]", 10258))),
            ("https://ccm.example", Some(("ccm.example", 443))),
            ("http://127.0.0.1:10258", None),
            ("127.0.0.1:10258", None),
        ];
        for (server, want) in rows {
            let seen = address(server).ok();
            assert_eq!(seen.as_ref().map(|(host, port)| (host.as_str(), *port)), want, "{server}");
        }
    }

    #[test]
    fn what_a_person_names_cannot_leave_its_place_in_the_path() {
        let ids = ["a/b".to_owned(), "c&id=d".to_owned()];
        assert_eq!(
            volumes("kubernetes.io/ebs", &ids),
            "volumes?plugin=kubernetes.io%2Febs&id=a%2Fb&id=c%26id%3Dd"
        );
        assert_eq!(cluster("../x?"), "clusters/..%2Fx%3F");
    }
}
