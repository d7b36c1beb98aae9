//! `/calls`: what came in.

use axum::{
    Json,
    extract::{Query, State as In, rejection::QueryRejection},
};

use super::{Answer, Door};
use crate::{
    admin::client::CallFilter,
    calls::{Call, CallSummary},
};

pub(crate) async fn list(
    In(door): In<Door>,
    filter: Result<Query<CallFilter>, QueryRejection>,
) -> Answer<Vec<Call>> {
    let Query(filter) = filter?;
    let limit = filter.limit.unwrap_or(usize::MAX);
    Ok(Json(door.calls.list(filter.method.as_deref(), filter.since.unwrap_or(0), limit)))
}

pub(crate) async fn summary(In(door): In<Door>) -> Json<CallSummary> {
    let methods = door.calls.methods();
    door.look(|state| CallSummary { methods, cloud: state.cloud_calls() })
}

pub(crate) async fn reset(In(door): In<Door>) -> Json<()> {
    door.calls.reset();
    door.look(crate::cloud::State::reset_cloud_calls)
}
