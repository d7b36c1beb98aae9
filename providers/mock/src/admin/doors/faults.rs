//! `/faults`: what is done to calls on purpose.

use axum::{
    Json,
    extract::{Path, State as In},
};

use super::{Answer, Body, Door};
use crate::{
    admin::{Cleared, refusal::Refused},
    fault::{FaultSpec, FaultStatus},
};

pub(crate) async fn list(In(door): In<Door>) -> Json<Vec<FaultStatus>> {
    Json(door.faults.list())
}

pub(crate) async fn add(In(door): In<Door>, fault: Body<FaultSpec>) -> Answer<FaultStatus> {
    let Json(spec) = fault?;
    let status = door.faults.add(spec.into_fault());
    tracing::info!(id = status.id, fault = status.fault.label(), "a fault stands");
    Ok(Json(status))
}

pub(crate) async fn remove(In(door): In<Door>, Path(id): Path<u64>) -> Answer<Cleared> {
    if door.faults.remove(id) {
        return Ok(Json(Cleared { cleared: 1 }));
    }
    Err(Refused::not_found(format!("fault {id} does not exist")))
}

pub(crate) async fn clear(In(door): In<Door>) -> Json<Cleared> {
    Json(Cleared { cleared: door.faults.clear() })
}
