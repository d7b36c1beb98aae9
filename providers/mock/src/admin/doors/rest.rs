//! Volumes, hosted clusters, SSH keys, quota and conditions.

use axum::{
    Json,
    extract::{Path, State as In},
};

use super::{Answer, Body, Door};
use crate::cloud::{Conditions, ConditionsPatch, Held, HostedCluster, Quota, SshKey, Volume};

pub(crate) async fn volumes(In(door): In<Door>) -> Json<Vec<Volume>> {
    door.look(|state| state.volumes().cloned().collect())
}

pub(crate) async fn put_volume(In(door): In<Door>, wish: Body<Volume>) -> Answer<Volume> {
    let Json(wish) = wish?;
    door.change(|state, _now| state.put_volume(wish)).await
}

pub(crate) async fn delete_volume(In(door): In<Door>, Path(id): Path<String>) -> Answer<Volume> {
    door.change(|state, _now| state.delete_volume(&id)).await
}

pub(crate) async fn clusters(In(door): In<Door>) -> Json<Vec<HostedCluster>> {
    door.look(|state| state.clusters().cloned().collect())
}

pub(crate) async fn put_cluster(In(door): In<Door>, wish: Body<HostedCluster>) -> Answer<HostedCluster> {
    let Json(wish) = wish?;
    door.change(|state, _now| state.put_cluster(wish)).await
}

pub(crate) async fn delete_cluster(In(door): In<Door>, Path(name): Path<String>) -> Answer<HostedCluster> {
    door.change(|state, _now| state.delete_cluster(&name)).await
}

pub(crate) async fn ssh_keys(In(door): In<Door>) -> Json<Vec<SshKey>> {
    door.look(|state| state.ssh_keys().to_vec())
}

pub(crate) async fn quota(In(door): In<Door>) -> Json<Quota> {
    door.look(crate::cloud::State::quota)
}

pub(crate) async fn set_quota(In(door): In<Door>, quota: Body<Quota>) -> Answer<Quota> {
    let Json(quota) = quota?;
    door.change(|state, _now| {
        state.set_quota(quota);
        Ok(quota)
    })
    .await
}

pub(crate) async fn conditions(In(door): In<Door>) -> Json<Conditions> {
    door.look(|state| state.conditions().clone())
}

pub(crate) async fn patch_conditions(In(door): In<Door>, patch: Body<ConditionsPatch>) -> Answer<Conditions> {
    let Json(patch) = patch?;
    door.change(|state, _now| Ok(state.patch_conditions(patch))).await
}

pub(crate) async fn held(In(door): In<Door>, Path(cluster_uid): Path<String>) -> Json<Vec<Held>> {
    door.look(|state| state.held(&cluster_uid))
}
