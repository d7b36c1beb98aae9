//! A layer in front of all services, on the wire: writes the call log and applies faults.
//!
//! In: a request as it arrived, before the SDK has read it. Out: the answer as the caller gets it. Because the layer works
//! on encoded messages, the provider behind it stays honest, and faults can bypass the SDK's checks.
//! [`fault`](crate::fault) and [`breach`](crate::breach) define the effects; calls of other services pass unchanged.

mod call;
mod exchange;
mod frames;

use std::sync::Arc;

use cloudprovider_sdk::{GrpcRequest, GrpcService, HookService};
use tower::{Layer, ServiceExt as _, layer::layer_fn, service_fn};

use crate::{contract::method, effect::Memory, mock::Mock};
use call::World;

/// Puts the layer in front of all services.
pub(crate) fn layer(
    mock: Mock,
) -> impl Layer<GrpcService, Service = impl HookService> + Send + Sync + 'static {
    let world = Arc::new(World { mock, memory: Memory::default() });
    layer_fn(move |inner: GrpcService| {
        let world = Arc::clone(&world);
        service_fn(move |request: GrpcRequest| {
            let (world, inner) = (Arc::clone(&world), inner.clone());
            async move {
                match method::of_path(request.uri().path()) {
                    None => inner.oneshot(request).await,
                    Some(method) => exchange::exchange(world, inner, method, request).await,
                }
            }
        })
    })
}
