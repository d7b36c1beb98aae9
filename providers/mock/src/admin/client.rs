//! The admin door's clients, in Rust and on the command line.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::TokioExecutor,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use prost::bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::Instant;

/// Pause between two looks for a file.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Maximum time for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client of one mock's admin door. Cheap to clone. A request fails when the door does not answer, or refuses.
///
/// Objects are named so: instances by id, provider ID or name; balancers by id, name, Service uid or `namespace/name`;
/// routes by id or CIDR.
#[derive(Debug, Clone)]
pub struct Client {
    address: SocketAddr,
    http: Http<HttpConnector, Full<Bytes>>,
}

impl Client {
    /// A client of the door at this address.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, http: Http::builder(TokioExecutor::new()).build_http() }
    }

    /// Waits until the door's address is in this file; by then gRPC is served, too.
    ///
    /// # Errors
    ///
    /// No address was written.
    pub async fn from_address_file(path: impl AsRef<Path>, patience: Duration) -> Result<Self> {
        let path = path.as_ref();
        let end = Instant::now() + patience;
        loop {
            let text = tokio::fs::read_to_string(path).await.unwrap_or_default();
            if let Ok(address) = text.trim().parse() {
                return Ok(Self::new(address));
            }
            ensure!(
                Instant::now() <= end,
                "no admin address appeared in {}; is provider-mock running with --admin-address-file?",
                path.display()
            );
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Where the door is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends one request. The path's segments need no escaping; `()` is no body.
    ///
    /// # Errors
    ///
    /// The door does not answer, or refuses.
    pub async fn call<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &[impl AsRef<str>],
        query: Option<&str>,
        body: &impl Serialize,
    ) -> Result<A> {
        let segments = path.iter().map(|segment| utf8_percent_encode(segment.as_ref(), NON_ALPHANUMERIC));
        let path: String = segments.map(|segment| format!("/{segment}")).collect();
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}{query}", self.address))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(serde_json::to_vec(body)?))?;
        let exchange = async {
            let answer = self.http.request(request).await?;
            let status = answer.status();
            anyhow::Ok((status, answer.into_body().collect().await?.to_bytes()))
        };
        let answered = tokio::time::timeout(PATIENCE, exchange).await.map_err(Into::into).flatten();
        let (status, body) = answered.with_context(|| {
            let address = self.address;
            format!(
                "the admin door at {address} does not answer; is provider-mock running with --admin-address?"
            )
        })?;
        if !status.is_success() {
            let refusal: Value = serde_json::from_slice(&body).unwrap_or_default();
            let told = refusal["error"].as_str().map(str::to_owned);
            bail!(told.unwrap_or_else(|| format!("the admin door answers {status}")));
        }
        serde_json::from_slice(&body)
            .context("the admin door's answer cannot be read; is it of another version?")
    }
}

/// Read or change the cloud of a running mock: sends one request to its admin door and prints the answer as JSON.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  provider-mock admin get instances
  provider-mock admin post instances --body '{\"name\": \"node-9\"}'
  provider-mock admin post instances node-9 terminate --body '{\"linger_ms\": 10000}'
  provider-mock admin patch conditions --body '{\"cloud_reachable\": false}'
  provider-mock admin delete faults

The README of provider-mock lists all paths.")]
pub struct Command {
    /// Address of the door.
    #[arg(
        long,
        env = "PROVIDER_MOCK_ADMIN",
        value_name = "ADDRESS:PORT",
        required_unless_present = "address_file"
    )]
    address: Option<SocketAddr>,
    /// File with the address of the door.
    #[arg(long, value_name = "FILE")]
    address_file: Option<PathBuf>,
    /// get, post, put, patch or delete.
    #[arg(value_parser = method)]
    method: Method,
    /// Segments of the path, unescaped: a provider ID or namespace/name is one segment.
    #[arg(required = true)]
    path: Vec<String>,
    /// The body, as JSON; an empty object by default.
    #[arg(long, value_name = "JSON", default_value = "{}", value_parser = json)]
    body: Value,
    /// Query parameters, for example limit=50 for calls.
    #[arg(long, value_name = "KEY=VALUE&…")]
    query: Option<String>,
}

impl Command {
    /// Sends the request and prints the answer.
    ///
    /// # Errors
    ///
    /// When the door does not answer, or refuses.
    pub async fn run(self) -> Result<()> {
        let client = match (self.address, self.address_file) {
            (Some(address), _) => Client::new(address),
            (None, file) => {
                let file = file.context("neither --address nor --address-file is given")?;
                Client::from_address_file(file, Duration::ZERO).await?
            }
        };
        let answer: Value = client.call(self.method, &self.path, self.query.as_deref(), &self.body).await?;
        match writeln!(io::stdout().lock(), "{answer:#}") {
            // The reader has read enough, as `head` does.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    }
}

fn method(text: &str) -> Result<Method, String> {
    let known = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let named = known.into_iter().find(|method| method.as_str().eq_ignore_ascii_case(text));
    named.ok_or_else(|| format!("{text:?} is not get, post, put, patch or delete"))
}

/// Clap would take any text as a JSON string, since `Value` can be made from one.
fn json(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text)
}
