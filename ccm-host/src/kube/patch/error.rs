//! The outcomes of a failed write, sorted by what the caller does next.

use std::time::Duration;

use ::kube::{Error, core::Status};

use super::Body;

/// A write that was not applied, or may not have been.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// There is no object of that name: nothing to do.
    #[error("the object does not exist")]
    NotFound,
    /// The object with that uid is gone and another one has its name: decide again.
    #[error("the object was replaced by another one of the same name")]
    Gone,
    /// Somebody changed the basis of the write: read again and decide again.
    #[error("the object was changed in the meantime")]
    Conflict,
    /// The apiserver refuses the value: retrying will not help until the input changes.
    #[error("the apiserver refuses the value: {0}")]
    Invalid(String),
    /// This process does not lead any more. The write may have been applied.
    #[error("this process does not lead any more")]
    NotLeading,
    /// Shadow mode: certainly not applied. Decide again after this long.
    #[error("held back: this host runs in shadow mode")]
    HeldBack(Duration),
    /// Everything else, timeouts included. It may have been applied.
    #[error("the apiserver did not take the write")]
    Other(#[source] Box<Error>),
}

impl WriteError {
    /// Whether to read again and decide again.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Conflict | Self::Gone)
    }

    /// Interprets the error of a patch.
    pub(super) fn of_patch(error: Error, body: &Body) -> Self {
        match error {
            Error::Api(status) if status.code == 422 => of_invalid(&status, body),
            Error::Api(status) if status.code == 409 => Self::Conflict,
            other => Self::of_request(other),
        }
    }

    /// Interprets the error of a deletion with a uid precondition.
    pub(super) fn of_delete(error: Error) -> Self {
        match error {
            Error::Api(status) if status.code == 409 => Self::Gone,
            other => Self::of_request(other),
        }
    }

    pub(super) fn of_request(error: Error) -> Self {
        match error {
            Error::Api(status) if status.code == 404 => Self::NotFound,
            other => Self::Other(Box::new(other)),
        }
    }
}

/// A 422 names the fields it refuses, except if an operation of a JSON patch could not be applied: then a `test`
/// failed, or a key to remove no longer exists.
fn of_invalid(status: &Status, body: &Body) -> WriteError {
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    if causes.iter().any(|cause| cause.field == "metadata.uid") {
        return WriteError::Gone;
    }
    match body {
        Body::Json(_) if causes.is_empty() => WriteError::Conflict,
        _ => WriteError::Invalid(status.message.clone()),
    }
}
