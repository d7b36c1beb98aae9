//! What the provider hears: each message as it comes over the wire.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use cloudprovider_sdk::{
    BoxError, GrpcRequest, GrpcResponse, GrpcService,
    proto::{BatchGetInstancesRequest, NodeRef},
};
use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use prost::Message as _;
use tonic::body::Body;
use tower::{Layer, Service, ServiceExt as _};

use crate::record::Record;

/// What stands before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Hears every unary call of one life of the provider.
#[derive(Debug, Clone)]
pub struct Ear(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    record: Record,
    /// The label that this life wants to know of nodes.
    label: Option<String>,
}

impl Ear {
    /// Judges by what this life of the provider advertises.
    #[must_use]
    pub fn new(record: Record, label: Option<String>) -> Self {
        Self(Arc::new(Inner { record, label }))
    }

    fn hear(&self, path: &str, bytes: &Bytes) {
        let is_plain = bytes.first() == Some(&0);
        if path.ends_with("/BatchGetInstances") && is_plain {
            let asked = bytes.get(PREFIX..).and_then(|bytes| BatchGetInstancesRequest::decode(bytes).ok());
            let nodes = asked.into_iter().flat_map(|asked| asked.queries).filter_map(|query| query.node);
            nodes.for_each(|node| self.know(&node));
        }
    }

    /// Kubelets set the labels when they register, so every node has them at any time.
    fn know(&self, node: &NodeRef) {
        let missing = self.0.label.as_ref().filter(|label| !node.labels.contains_key(*label));
        if let Some(label) = missing {
            let what = format!("{} without its label {label}", node.name);
            self.0.record.broken("a provider is told what it wants to know", what);
        }
    }
}

impl Layer<GrpcService> for Ear {
    type Service = Heard;

    fn layer(&self, inner: GrpcService) -> Heard {
        Heard { ear: self.clone(), inner }
    }
}

/// All services behind it.
#[derive(Debug, Clone)]
pub struct Heard {
    ear: Ear,
    inner: GrpcService,
}

impl Service<GrpcRequest> for Heard {
    type Response = GrpcResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<GrpcResponse, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: GrpcRequest) -> Self::Future {
        let (ear, inner) = (self.ear.clone(), self.inner.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await?.to_bytes();
            ear.hear(parts.uri.path(), &bytes);
            inner.oneshot(GrpcRequest::from_parts(parts, Body::new(Full::new(bytes)))).await
        })
    }
}
