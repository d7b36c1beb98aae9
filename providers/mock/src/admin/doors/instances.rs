//! `/instances`: made, changed, stopped, started, terminated, taken away.

use std::time::Duration;

use axum::{
    Json,
    extract::{Path, State as In},
};

use super::{Answer, Body, Door};
use crate::{
    admin::{Termination, refusal::Refused},
    cloud::{Instance, InstancePatch, NewInstances},
};

pub(crate) async fn list(In(door): In<Door>) -> Json<Vec<Instance>> {
    door.look(|state| state.instances().cloned().collect())
}

pub(crate) async fn create(In(door): In<Door>, wish: Body<NewInstances>) -> Answer<Vec<Instance>> {
    let Json(wish) = wish?;
    door.change(|state, now| state.create_instances(&wish, now)).await
}

pub(crate) async fn get(In(door): In<Door>, Path(reference): Path<String>) -> Answer<Instance> {
    let Json(found) = door.look(|state| state.instance(&reference).cloned());
    found.map(Json).ok_or_else(|| Refused::not_found(format!("instance {reference} does not exist")))
}

pub(crate) async fn patch(
    In(door): In<Door>,
    Path(reference): Path<String>,
    patch: Body<InstancePatch>,
) -> Answer<Instance> {
    let Json(patch) = patch?;
    door.change(|state, now| state.patch_instance(&reference, patch, now)).await
}

pub(crate) async fn delete(In(door): In<Door>, Path(reference): Path<String>) -> Answer<Instance> {
    door.change(|state, now| state.delete_instance(&reference, now)).await
}

pub(crate) async fn delete_named(In(door): In<Door>, Path(prefix): Path<String>) -> Answer<Vec<Instance>> {
    door.change(|state, now| Ok(state.delete_instances(&prefix, now))).await
}

pub(crate) async fn stop(In(door): In<Door>, Path(reference): Path<String>) -> Answer<Instance> {
    door.change(|state, now| state.stop_instance(&reference, now)).await
}

pub(crate) async fn start(In(door): In<Door>, Path(reference): Path<String>) -> Answer<Instance> {
    door.change(|state, now| state.start_instance(&reference, now)).await
}

pub(crate) async fn terminate(
    In(door): In<Door>,
    Path(reference): Path<String>,
    wish: Body<Termination>,
) -> Answer<Instance> {
    let Json(wish) = wish?;
    let linger = wish.linger_ms.map(Duration::from_millis);
    door.change(|state, now| state.terminate_instance(&reference, linger, now)).await
}
