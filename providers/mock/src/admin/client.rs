//! The admin door's client in Rust.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::TokioExecutor,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use prost::bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use super::Refusal;

type Result<T, E = ClientError> = std::result::Result<T, E>;

/// Pause between two looks for a file.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Maximum time for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No address was written.
    #[error("no admin address appeared in {path}; is provider-mock running with --admin-address-file?")]
    NoAddress {
        /// The file.
        path: PathBuf,
    },
    /// The door does not answer.
    #[error("the admin door at {address} does not answer; is provider-mock running with --admin-address?")]
    Unreachable {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The door refuses.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Its message.
        message: String,
    },
    /// The door's answer cannot be read.
    #[error("the admin door's answer cannot be read; is it of another version?")]
    Content {
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// A client of one mock's admin door. Cheap to clone.
///
/// Objects are named so: instances by id, provider ID or name; balancers by id, name, Service uid or `namespace/name`;
/// routes by id or CIDR.
#[derive(Debug, Clone)]
pub struct Client {
    address: SocketAddr,
    http: Http<HttpConnector, Full<Bytes>>,
}

#[expect(clippy::missing_errors_doc, reason = "all alike: the door does not answer, or refuses")]
impl Client {
    /// A client of the door at this address.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, http: Http::builder(TokioExecutor::new()).build_http() }
    }

    /// Waits until the door's address is in this file; by then gRPC is served, too.
    pub async fn from_address_file(path: impl AsRef<Path>, patience: Duration) -> Result<Self> {
        let path = path.as_ref();
        let end = Instant::now() + patience;
        loop {
            if let Some(address) =
                tokio::fs::read_to_string(path).await.ok().and_then(|text| text.trim().parse().ok())
            {
                return Ok(Self::new(address));
            }
            if Instant::now() > end {
                return Err(ClientError::NoAddress { path: path.to_owned() });
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Where the door is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends one request. The path's segments need no escaping; `()` is no body.
    pub async fn call<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &[impl AsRef<str>],
        query: Option<&str>,
        body: &impl Serialize,
    ) -> Result<A> {
        let unreachable = |source: Box<dyn std::error::Error + Send + Sync>| ClientError::Unreachable {
            address: self.address,
            source,
        };
        let segments = path.iter().map(|segment| utf8_percent_encode(segment.as_ref(), NON_ALPHANUMERIC));
        let path: String = segments.map(|segment| format!("/{segment}")).collect();
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let body = serde_json::to_vec(body).map_err(|source| ClientError::Content { source })?;
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}{query}", self.address))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body))
            .map_err(|error| unreachable(error.into()))?;
        let exchange = async {
            let answer = self.http.request(request).await.map_err(|error| unreachable(error.into()))?;
            let status = answer.status();
            let body = answer.into_body().collect().await.map_err(|error| unreachable(error.into()))?;
            Ok((status, body.to_bytes()))
        };
        let answered = tokio::time::timeout(PATIENCE, exchange).await;
        let (status, body) = answered.map_err(|late| unreachable(late.into()))??;
        if !status.is_success() {
            return Err(refused(status, &body));
        }
        serde_json::from_slice(&body).map_err(|source| ClientError::Content { source })
    }
}

fn refused(status: StatusCode, body: &[u8]) -> ClientError {
    let message = serde_json::from_slice::<Refusal>(body)
        .map_or_else(|_| format!("the admin door answers {status}"), |refusal| refusal.error);
    ClientError::Refused { status: status.as_u16(), message }
}
