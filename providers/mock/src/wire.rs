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

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request as HttpRequest, Response as HttpResponse};
use tonic::body::Body;
use tower::{Layer, Service};

use crate::mock::Mock;

pub use message::Method;
pub(crate) use message::{Answer, Request, code_named, instance_state_named, reason_named};
pub(crate) use parts::Item;
pub(crate) use scene::{Delivery, Outcome, Reply, Shot, Turn};
use scene::{Memory, Subjects, World};
pub(crate) use subject::Subject;

/// Puts the wire before all services.
#[derive(Debug, Clone)]
pub(crate) struct WireLayer(Arc<World>);

impl WireLayer {
    pub(crate) fn new(mock: Mock) -> Self {
        Self(Arc::new(World { mock, memory: Memory::default() }))
    }
}

impl<S> Layer<S> for WireLayer {
    type Service = Wire<S>;

    fn layer(&self, inner: S) -> Wire<S> {
        Wire { world: Arc::clone(&self.0), inner }
    }
}

/// All services behind the wire.
#[derive(Debug, Clone)]
pub(crate) struct Wire<S> {
    world: Arc<World>,
    inner: S,
}

impl<S> Service<HttpRequest<Body>> for Wire<S>
where
    S: Service<HttpRequest<Body>, Response = HttpResponse<Body>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = HttpResponse<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        // The clone was not asked whether it is ready; the one that was takes the call.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        match Method::of_path(request.uri().path()) {
            None => Box::pin(inner.call(request)),
            Some(method) => Box::pin(exchange::exchange(Arc::clone(&self.world), inner, method, request)),
        }
    }
}
