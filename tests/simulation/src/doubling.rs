//! Calls that arrive twice, as over a proxy that repeats what it takes for lost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll},
};

use cloudprovider_sdk::{BoxError, GrpcRequest, GrpcResponse, GrpcService};
use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use tonic::body::Body;
use tower::{Layer, Service, ServiceExt as _};

/// Doubles a share of all unary calls; the caller hears the second answer.
#[derive(Debug, Clone, Default)]
pub struct Doubling(Arc<AtomicU8>);

impl Doubling {
    /// So many calls in a hundred.
    pub fn percent(&self, percent: u8) {
        self.0.store(percent, Ordering::Relaxed);
    }
}

impl Layer<GrpcService> for Doubling {
    type Service = Doubled;

    fn layer(&self, inner: GrpcService) -> Doubled {
        Doubled { doubling: self.clone(), inner }
    }
}

/// All services behind it.
#[derive(Debug, Clone)]
pub struct Doubled {
    doubling: Doubling,
    inner: GrpcService,
}

impl Service<GrpcRequest> for Doubled {
    type Response = GrpcResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<GrpcResponse, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: GrpcRequest) -> Self::Future {
        let inner = self.inner.clone();
        let is_stream = request.uri().path().contains("/Watch");
        let percent = self.doubling.0.load(Ordering::Relaxed);
        if is_stream || percent == 0 || fastrand::u8(..100) >= percent {
            return Box::pin(inner.oneshot(request));
        }
        Box::pin(async move {
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
        })
    }
}
