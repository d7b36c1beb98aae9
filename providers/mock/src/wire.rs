//! One layer round all services, on the wire: it writes the call log and does what is done to calls on purpose.
//!
//! In: a request as it came, before the SDK looked at it. Out: the answer as the caller gets it. Because it reads and
//! writes encoded messages, the provider behind it stays honest, and whatever the SDK checks can be gone round. What is
//! done is decided in [`fault`](crate::fault) and [`breach`](crate::breach); calls of other services pass unseen.

mod call;
mod exchange;
mod frames;
mod message;
mod parts;
mod scene;
mod subject;

use std::sync::Arc;

use cloudprovider_sdk::{GrpcRequest, GrpcService, HookService};
use tower::{Layer, ServiceExt as _, layer::layer_fn, service_fn};

use crate::mock::Mock;

pub use message::Method;
pub(crate) use message::{Answer, Request, code_named, instance_state_named, reason_named};
pub(crate) use parts::Item;
pub(crate) use scene::{Delivery, Outcome, Reply, Shot, Turn};
use scene::{Memory, Subjects, World};
pub(crate) use subject::Subject;

/// Puts the wire before all services.
pub(crate) fn layer(
    mock: Mock,
) -> impl Layer<GrpcService, Service = impl HookService> + Send + Sync + 'static {
    let world = Arc::new(World { mock, memory: Memory::default() });
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
