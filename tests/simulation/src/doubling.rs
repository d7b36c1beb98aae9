//! Calls that arrive twice, as through a proxy that repeats calls it believes lost.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use cloudprovider_sdk::{BoxError, GrpcRequest, GrpcResponse, GrpcService, HookService};
use http_body_util::{BodyExt as _, Full};
use tonic::body::Body;
use tower::{Layer, ServiceExt as _, layer::layer_fn, service_fn};

/// Doubles a share of all unary calls; the caller gets the second answer.
#[derive(Debug, Clone, Default)]
pub struct Doubling(Arc<AtomicU8>);

impl Doubling {
    /// The share in percent.
    pub fn percent(&self, percent: u8) {
        self.0.store(percent, Ordering::Relaxed);
    }

    /// Wraps all services.
    pub fn layer(self) -> impl Layer<GrpcService, Service: HookService> {
        layer_fn(move |inner: GrpcService| {
            let doubling = self.clone();
            service_fn(move |request| doubling.clone().call(inner.clone(), request))
        })
    }

    async fn call(self, inner: GrpcService, request: GrpcRequest) -> Result<GrpcResponse, BoxError> {
        let is_stream = request.uri().path().contains("/Watch");
        let percent = self.0.load(Ordering::Relaxed);
        if is_stream || percent == 0 || fastrand::u8(..100) >= percent {
            return inner.oneshot(request).await;
        }
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let copy = || {
            let body = Body::new(Full::new(bytes.clone()));
            let mut copy = GrpcRequest::new(body);
            copy.method_mut().clone_from(&parts.method);
            copy.uri_mut().clone_from(&parts.uri);
            copy.headers_mut().clone_from(&parts.headers);
            *copy.extensions_mut() = parts.extensions.clone();
            copy
        };
        let first = inner.clone().oneshot(copy()).await?;
        let _nobody_hears_it = first.into_body().collect().await;
        inner.oneshot(copy()).await
    }
}
