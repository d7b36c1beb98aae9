//! Checks each message that the provider receives, as it comes over the wire.

use std::sync::Arc;

use cloudprovider_sdk::{
    BoxError, GrpcRequest, GrpcResponse, GrpcService, HookService,
    proto::{BatchGetInstancesRequest, NodeRef},
};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use prost::Message as _;
use tonic::body::Body;
use tower::{Layer, ServiceExt as _, layer::layer_fn, service_fn};

use crate::record::Record;

/// The prefix of each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Checks every unary call to one life of the provider.
#[derive(Debug, Clone)]
pub struct Ear(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    record: Record,
    /// The node label that this life asks for.
    label: Option<String>,
}

impl Ear {
    /// Checks messages against what this life of the provider advertises.
    pub fn new(record: Record, label: Option<String>) -> Self {
        Self(Arc::new(Inner { record, label }))
    }

    /// Wraps all services.
    pub fn layer(self) -> impl Layer<GrpcService, Service: HookService> {
        layer_fn(move |inner: GrpcService| {
            let ear = self.clone();
            service_fn(move |request| ear.clone().call(inner.clone(), request))
        })
    }

    async fn call(self, inner: GrpcService, request: GrpcRequest) -> Result<GrpcResponse, BoxError> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await?.to_bytes();
        self.hear(parts.uri.path(), &bytes);
        inner.oneshot(GrpcRequest::from_parts(parts, Body::new(Full::new(bytes)))).await
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
