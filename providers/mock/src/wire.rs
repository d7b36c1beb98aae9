//! One layer round all services, on the wire: it writes the call log and does what is done to calls on purpose.
//!
//! In: a request as it came, before the SDK looked at it. Out: the answer as the caller gets it. Because it reads and
//! writes encoded messages, the provider behind it stays honest, and whatever the SDK checks can be gone round. What is
//! done is decided in [`fault`](crate::fault) and [`breach`](crate::breach); calls of other services pass unseen.

mod call;
mod exchange;
mod frames;

use std::sync::Arc;

use cloudprovider_sdk::{GrpcRequest, GrpcService, HookService};
use tower::{Layer, ServiceExt as _, layer::layer_fn, service_fn};

use crate::{contract::Method, mock::Mock};
use call::World;

/// Puts the wire before all services.
pub(crate) fn layer(
    mock: Mock,
) -> impl Layer<GrpcService, Service = impl HookService> + Send + Sync + 'static {
    let world = Arc::new(World::new(mock));
    layer_fn(move |inner: GrpcService| {
        let world = Arc::clone(&world);
        service_fn(move |request: GrpcRequest| {
            let (world, inner) = (Arc::clone(&world), inner.clone());
            async move {
                match Method::of_path(request.uri().path()) {
                    None => inner.oneshot(request).await,
                    Some(method) => exchange::exchange(world, inner, method, request).await,
                }
            }
        })
    })
}
