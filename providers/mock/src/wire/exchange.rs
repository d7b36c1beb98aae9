//! One call from arrival to answer: log it, apply faults, do the work, apply faults again, deliver.

use std::{convert::Infallible, sync::Arc, time::Duration};

use cloudprovider_sdk::{BoxError, GrpcRequest, GrpcResponse, GrpcService, timeout};
use http::HeaderMap;
use http_body_util::{BodyExt as _, Full};
use prost::bytes::Bytes;
use tonic::{Code, Status, body::Body, metadata::MetadataMap};
use tower::ServiceExt as _;

use super::{
    call::{Call, Entry, World, arrive},
    frames,
};
use crate::{
    calls::GONE,
    contract::{Message, Method, method},
    effect::{Delivery, Turn},
};

/// How long an answer is held back if a caller that disconnects meanwhile leaves the work half done.
const HELD_BACK: Duration = Duration::from_millis(1500);
/// How long after the deadline the late work happens.
const TOO_LATE: Duration = Duration::from_millis(200);
/// The same, if the caller was told that the deadline passed.
const MUCH_TOO_LATE: Duration = Duration::from_secs(1);
const DEADLINE: &str = "grpc-timeout";

/// Leaves a balancer half configured when dropped, unless disarmed.
struct HalveOnDrop(Option<(Arc<World>, String)>);

impl Drop for HalveOnDrop {
    fn drop(&mut self) {
        if let Some((world, id)) = self.0.take()
            && let Err(error) = world.mock.alter(|state| state.halve_balancer(&id))
        {
            tracing::debug!(%error, "nothing to leave half made");
        }
    }
}

pub(super) async fn exchange(
    world: Arc<World>,
    inner: GrpcService,
    method: &'static Method,
    request: GrpcRequest,
) -> Result<GrpcResponse, BoxError> {
    let (parts, body) = request.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(status) => return Ok(status.into_http()),
    };
    let Some(message) = frames::only_message(&body).and_then(|bytes| Message::request(method, bytes)) else {
        // It cannot be read here; the services say why.
        return inner.oneshot(GrpcRequest::from_parts(parts, Body::new(Full::new(body)))).await;
    };
    let (mut call, entry) = arrive(world, method, message, &parts);
    call.wait().await;
    let turn = call.before();
    // Without faults, exactly the bytes that arrived.
    let body = call.changed_request().map_or(body, |message| frames::framed(&message));
    let request = GrpcRequest::from_parts(parts, Body::new(Full::new(body)));
    match turn {
        Turn::GoOn => {}
        Turn::Answer(outcome) => {
            let outcome = outcome.map(|answer| answer.encode().into());
            return Ok(call.deliver(outcome, entry).await);
        }
        Turn::Hang => never().await,
        Turn::IfAwaited => tokio::time::sleep(HELD_BACK).await,
        Turn::TooLate { told } => {
            let deadline = deadline_of(&request);
            let _goes_on_without_us = tokio::spawn(work_too_late(inner, request, deadline, told));
            if !told {
                never().await;
            }
            tokio::time::sleep(deadline.mul_f64(0.9)).await;
            return Ok(call.deliver(Err(Status::deadline_exceeded("the deadline passed")), entry).await);
        }
    }
    let answer = inner.oneshot(request).await?;
    if method == &method::WATCH_INSTANCES {
        return Ok(watch(call, entry, answer));
    }
    let outcome = read(answer).await;
    Ok(call.deliver(outcome, entry).await)
}

/// Reads the outcome from an answer of the services.
async fn read(answer: GrpcResponse) -> Result<Bytes, Status> {
    let (parts, body) = answer.into_parts();
    if let Some(status) = Status::from_header_map(&parts.headers) {
        return Err(status);
    }
    let body = body.collect().await?;
    let trailers = body.trailers().and_then(Status::from_header_map);
    if let Some(status) = trailers.filter(|status| status.code() != Code::Ok) {
        return Err(status);
    }
    let message = frames::only_message(&body.to_bytes());
    message.ok_or_else(|| Status::internal("the answer cannot be read"))
}

async fn never() -> ! {
    match std::future::pending::<Infallible>().await {}
}

fn deadline_of(request: &GrpcRequest) -> Duration {
    timeout(&MetadataMap::from_headers(request.headers().clone())).unwrap_or_default()
}

async fn work_too_late(inner: GrpcService, mut request: GrpcRequest, deadline: Duration, told: bool) {
    request.headers_mut().remove(DEADLINE);
    tokio::time::sleep(deadline + if told { MUCH_TOO_LATE } else { TOO_LATE }).await;
    let _nobody_waits_for_it = inner.oneshot(request).await;
}

impl Call {
    async fn deliver(self, outcome: Result<Bytes, Status>, entry: Entry) -> GrpcResponse {
        let (outcome, delivery) = self.after(outcome, 0);
        match delivery {
            Delivery::Send | Delivery::Drop => {}
            Delivery::Silent => never().await,
            Delivery::Reset => {
                entry.end(GONE, "");
                return frames::reset_answer();
            }
            Delivery::OrHalve(id) => {
                let mut guard = HalveOnDrop(Some((Arc::clone(&self.world), id)));
                tokio::time::sleep(HELD_BACK).await;
                guard.0 = None;
            }
        }
        match outcome {
            Ok(message) => {
                entry.end("OK", "");
                frames::ok_answer(&message)
            }
            Err(status) => {
                entry.end_with(&status);
                status.into_http()
            }
        }
    }
}

/// Applies the faults to each frame; the log entry ends with the stream.
fn watch(call: Call, entry: Entry, answer: GrpcResponse) -> GrpcResponse {
    let (parts, body) = answer.into_parts();
    if let Some(status) = Status::from_header_map(&parts.headers) {
        let status = call.after(Err(status.clone()), 0).0.err().unwrap_or(status);
        entry.end_with(&status);
        return status.into_http();
    }
    let mut number = 0;
    let change = move |message: Bytes| {
        let frame = number;
        number += 1;
        pass(&call, message, frame)
    };
    let ended = move |trailers: &HeaderMap| match Status::from_header_map(trailers) {
        Some(status) if status.code() != Code::Ok => entry.end_with(&status),
        _ => entry.end("OK", ""),
    };
    frames::answer(frames::changed(body, change, ended))
}

/// The message that replaces one of a stream, if any; the stream is reset at an error.
fn pass(call: &Call, message: Bytes, number: u64) -> Result<Option<Bytes>, Status> {
    match call.after(Ok(message), number) {
        (_, Delivery::Drop) => Ok(None),
        (Ok(message), Delivery::Send) => Ok(Some(message)),
        _ => Err(Status::unknown("the stream is cut")),
    }
}
