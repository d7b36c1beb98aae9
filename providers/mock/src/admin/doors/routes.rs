//! `/routes`: seen, and changed behind the provider's back.

use axum::{
    Json,
    extract::{Path, State as In},
};

use super::{Answer, Body, Door};
use crate::cloud::{ListedRoute, NewRoute, Route, RoutePatch};

pub(crate) async fn list(In(door): In<Door>) -> Json<Vec<ListedRoute>> {
    door.look(|state| state.routes().collect())
}

pub(crate) async fn create(In(door): In<Door>, wish: Body<NewRoute>) -> Answer<ListedRoute> {
    let Json(wish) = wish?;
    door.change(|state, _now| state.create_route_outside(wish)).await
}

pub(crate) async fn patch(
    In(door): In<Door>,
    Path(reference): Path<String>,
    patch: Body<RoutePatch>,
) -> Answer<ListedRoute> {
    let Json(patch) = patch?;
    door.change(|state, _now| state.patch_route(&reference, patch)).await
}

pub(crate) async fn delete(In(door): In<Door>, Path(reference): Path<String>) -> Answer<Route> {
    door.change(|state, _now| state.remove_route_outside(&reference)).await
}
