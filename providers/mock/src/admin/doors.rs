//! What happens behind each path: one change or one look at the cloud.

pub(super) mod balancers;
pub(super) mod calls;
pub(super) mod faults;
pub(super) mod instances;
pub(super) mod rest;
pub(super) mod routes;

use axum::{Json, extract::State as In, extract::rejection::JsonRejection};
use jiff::Timestamp;

use super::{Door, Info, refusal::Refused};
use crate::cloud::{CloudError, State};

/// A body, or what is wrong with it.
type Body<T> = Result<Json<T>, JsonRejection>;
/// What a path answers.
type Answer<T> = Result<Json<T>, Refused>;

impl Door {
    fn look<R>(&self, look: impl FnOnce(&State) -> R) -> Json<R> {
        Json(self.cloud.read((self.clock)(), look))
    }

    async fn change<R>(&self, act: impl FnOnce(&mut State, Timestamp) -> Result<R, CloudError>) -> Answer<R> {
        let now = (self.clock)();
        Ok(Json(self.cloud.change(now, |state| act(state, now)).await??))
    }
}

pub(super) async fn info(In(door): In<Door>) -> Json<Info> {
    Json(door.info)
}
