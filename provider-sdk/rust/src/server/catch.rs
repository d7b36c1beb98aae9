//! Panics outside a method (in decoding, for example) also become an error of the contract.

use std::any::Any;

use tonic::body::Body;
use tonic::service::Routes;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;

use super::hook::{BoxError, GrpcRequest, GrpcService};
use crate::ProviderError;

/// The services, with `INTERNAL_ERROR` for a panic. Its message was logged where it happened.
pub(super) fn service(routes: Routes) -> GrpcService {
    let caught = ServiceBuilder::new()
        .map_err(BoxError::from)
        .map_request(|request: GrpcRequest| request)
        .map_response(|answer: http::Response<_>| answer.map(Body::new))
        .layer(CatchPanicLayer::custom(answer))
        .service(routes);
    GrpcService::new(caught)
}

fn answer(_panic: Box<dyn Any + Send>) -> http::Response<Body> {
    ProviderError::internal("a panic outside of a method").to_status().into_http()
}
