//! `grpc.health.v1.Health`: SERVING means that the provider accepts work, and nothing more.
//!
//! When the provider stops, streams report it and end; a graceful stop would otherwise wait for them.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::provider::Lifecycle;

/// Serves the provider's health.
#[derive(Debug)]
pub(super) struct HealthRpc(Arc<Lifecycle>);

impl HealthRpc {
    pub(super) fn new(lifecycle: Arc<Lifecycle>) -> Self {
        Self(lifecycle)
    }
}

#[tonic::async_trait]
impl Health for HealthRpc {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        match self.0.health(&service) {
            Some(health) => {
                let serves = *health.borrow() && !self.0.stop.is_cancelled();
                Ok(Response::new(answer(status(serves))))
            }
            None => Err(Status::not_found("the service is not served")),
        }
    }

    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let stop = self.0.stop.clone();
        let stream = match self.0.health(&request.into_inner().service) {
            Some(mut health) => {
                health.mark_changed();
                stream::unfold(Some((health, stop)), next).boxed()
            }
            // The protocol keeps such a stream open in case the service appears; here it never does.
            None => stream::once(async { Ok(answer(ServingStatus::ServiceUnknown)) })
                .chain(stream::once(async move { stop.cancelled().await }).filter_map(|()| async { None }))
                .boxed(),
        };
        Ok(Response::new(stream))
    }
}

type State = (watch::Receiver<bool>, CancellationToken);
type Item = Result<HealthCheckResponse, Status>;

async fn next(state: Option<State>) -> Option<(Item, Option<State>)> {
    let (mut health, stop) = state?;
    tokio::select! {
        biased;
        () = stop.cancelled() => return Some((Ok(answer(ServingStatus::NotServing)), None)),
        changed = health.changed() => changed.ok()?,
    }
    let now = *health.borrow_and_update();
    Some((Ok(answer(status(now))), Some((health, stop))))
}

fn status(serves: bool) -> ServingStatus {
    if serves { ServingStatus::Serving } else { ServingStatus::NotServing }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
