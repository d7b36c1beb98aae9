//! A layer around all services, for test doubles and proxies.

use std::sync::Arc;

use tonic::body::Body;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt as _};

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A gRPC request as HTTP, its messages still encoded.
pub type GrpcRequest = http::Request<Body>;
/// A gRPC response as HTTP, its messages already encoded.
pub type GrpcResponse = http::Response<Body>;
/// All services as one.
pub type GrpcService = BoxCloneSyncService<GrpcRequest, GrpcResponse, BoxError>;

/// The service that a layer of [`Server::layer`](crate::Server::layer) returns: any cloneable service of gRPC
/// requests.
pub trait HookService: Send + Sync + Clone + 'static {
    /// The service as a box.
    fn boxed_grpc(self) -> GrpcService;
}

impl<S> HookService for S
where
    S: Service<GrpcRequest, Response = GrpcResponse> + Send + Sync + Clone + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + 'static,
{
    fn boxed_grpc(self) -> GrpcService {
        BoxCloneSyncService::new(self.map_err(Into::into))
    }
}

/// The layers so far, the last one outermost.
#[derive(Clone)]
pub(super) struct Hook(Arc<dyn Fn(GrpcService) -> GrpcService + Send + Sync>);

impl Hook {
    pub(super) fn new<L>(layer: L, inner: Option<Self>) -> Self
    where
        L: Layer<GrpcService> + Send + Sync + 'static,
        L::Service: HookService,
    {
        Self(Arc::new(move |services| {
            let services =
                inner.as_ref().map_or_else(|| services.clone(), |inner| inner.wrap(services.clone()));
            layer.layer(services).boxed_grpc()
        }))
    }

    pub(super) fn wrap(&self, services: GrpcService) -> GrpcService {
        (self.0)(services)
    }
}
