//! The admin door from Rust: JSON out, JSON in.

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

/// How often a file is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody wrote an address.
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
        /// HTTP status.
        status: u16,
        /// What it says.
        message: String,
    },
    /// The door says something that cannot be read.
    #[error("the admin door's answer cannot be read; is it of another version?")]
    Content {
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// Speaks to the admin door of one mock. Cheap to clone.
///
/// References to things: instances by id, provider ID or name; balancers by id, name, Service uid or `namespace/name`;
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

    /// A client of the door whose address is written to this file, once it is there: by then gRPC is served, too.
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

    /// One exchange: the segments of the path, which need no escaping, and the body, `()` for none.
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
