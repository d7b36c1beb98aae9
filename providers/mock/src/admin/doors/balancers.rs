//! `/balancers`: seen, and changed behind the provider's back.

use axum::{
    Json,
    extract::{Path, State as In},
};

use super::{Answer, Body, Door};
use crate::{
    admin::refusal::Refused,
    cloud::{Balancer, BalancerPatch, NewLegacyBalancer},
};

pub(crate) async fn list(In(door): In<Door>) -> Json<Vec<Balancer>> {
    door.look(|state| state.balancers().cloned().collect())
}

pub(crate) async fn get(In(door): In<Door>, Path(reference): Path<String>) -> Answer<Balancer> {
    let Json(found) = door.look(|state| state.balancer(&reference).cloned());
    found.map(Json).ok_or_else(|| Refused::not_found(format!("load balancer {reference} does not exist")))
}

/// Far less to read than all balancers with all their backends.
pub(crate) async fn behind(In(door): In<Door>, Path(node): Path<String>) -> Json<Vec<String>> {
    door.look(|state| {
        let holds = |balancer: &&Balancer| {
            let mut backends = balancer.backends.iter();
            backends.any(|backend| backend.node == node && !backend.provider_id.is_empty())
        };
        state.balancers().filter(holds).map(|balancer| balancer.id.clone()).collect()
    })
}

pub(crate) async fn create_legacy(In(door): In<Door>, wish: Body<NewLegacyBalancer>) -> Answer<Balancer> {
    let Json(wish) = wish?;
    door.change(|state, now| state.create_legacy_balancer(wish, now)).await
}

pub(crate) async fn patch(
    In(door): In<Door>,
    Path(reference): Path<String>,
    patch: Body<BalancerPatch>,
) -> Answer<Balancer> {
    let Json(patch) = patch?;
    door.change(|state, _now| state.patch_balancer(&reference, patch)).await
}

pub(crate) async fn delete(In(door): In<Door>, Path(reference): Path<String>) -> Answer<Balancer> {
    door.change(|state, _now| state.remove_balancer_outside(&reference)).await
}
