//! A small HTTP client for one loopback address: JSON out, JSON in.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use prost::bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use crate::admin::refusal::Refusal;

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

impl ClientError {
    /// What was asked for is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}

/// What is done to a path.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verb {
    Post,
    Put,
    Patch,
}

/// One door.
#[derive(Debug, Clone)]
pub(super) struct Door {
    address: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Door {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) async fn get<A: DeserializeOwned>(&self, path: &[&str]) -> Result<A, ClientError> {
        self.call(Method::GET, path_of(path), Bytes::new()).await
    }

    /// Asks with a query, all of whose values are plain.
    pub(super) async fn ask<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &Q,
    ) -> Result<A, ClientError> {
        let fields = serde_json::to_value(query).map_err(|source| ClientError::Content { source })?;
        let pairs = fields.as_object().into_iter().flatten();
        let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), escaped);
        let query: Vec<_> = pairs.map(|(key, value)| format!("{key}={}", text(value))).collect();
        self.call(Method::GET, format!("{}?{}", path_of(path), query.join("&")), Bytes::new()).await
    }

    pub(super) async fn send<Q: Serialize, A: DeserializeOwned>(
        &self,
        verb: Verb,
        path: &[&str],
        body: &Q,
    ) -> Result<A, ClientError> {
        let method = match verb {
            Verb::Post => Method::POST,
            Verb::Put => Method::PUT,
            Verb::Patch => Method::PATCH,
        };
        let body = serde_json::to_vec(body).map_err(|source| ClientError::Content { source })?;
        self.call(method, path_of(path), body.into()).await
    }

    pub(super) async fn delete<A: DeserializeOwned>(&self, path: &[&str]) -> Result<A, ClientError> {
        self.call(Method::DELETE, path_of(path), Bytes::new()).await
    }

    async fn call<A: DeserializeOwned>(
        &self,
        method: Method,
        path: String,
        body: Bytes,
    ) -> Result<A, ClientError> {
        let unreachable = |source: Box<dyn std::error::Error + Send + Sync>| ClientError::Unreachable {
            address: self.address,
            source,
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| unreachable(error.into()))?;
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| unreachable(error.into()))?;
            let status = answer.status();
            let body = answer.into_body().collect().await.map_err(|error| unreachable(error.into()))?;
            Ok::<_, ClientError>((status, body.to_bytes()))
        };
        let answered = tokio::time::timeout(PATIENCE, exchange).await;
        let (status, body) = answered.map_err(|late| unreachable(late.into()))??;
        if !status.is_success() {
            return Err(refused(status, &body));
        }
        serde_json::from_slice(&body).map_err(|source| ClientError::Content { source })
    }
}

fn refused(status: StatusCode, body: &Bytes) -> ClientError {
    let message = serde_json::from_slice::<Refusal>(body)
        .map_or_else(|_| format!("the admin door answers {status}"), |refusal| refusal.error);
    ClientError::Refused { status: status.as_u16(), message }
}

fn path_of(segments: &[&str]) -> String {
    segments.iter().map(|segment| format!("/{}", escaped(segment))).collect()
}

/// Everything but letters, digits and `-._~` as `%XX`, so that a provider ID is one segment.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_id_is_one_segment_of_a_path() {
        assert_eq!(path_of(&["instances", "mock://a/i-1"]), "/instances/mock%3A%2F%2Fa%2Fi-1");
    }
}
