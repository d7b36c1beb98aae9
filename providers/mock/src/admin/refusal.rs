//! Refusals of the door, as HTTP and JSON: `{"error": "text"}`.

use axum::{
    Json,
    extract::rejection::{JsonRejection, QueryRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};

use crate::cloud::{CloudError, StoreError};

/// The body of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// What is wrong.
    pub(crate) error: String,
}

/// A refusal and its status.
#[derive(Debug)]
pub(super) struct Refused(StatusCode, String);

impl Refused {
    pub(super) fn not_found(what: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, what.into())
    }
}

impl From<CloudError> for Refused {
    fn from(error: CloudError) -> Self {
        let status = match error {
            CloudError::NotFound { .. } => StatusCode::NOT_FOUND,
            CloudError::AlreadyExists { .. } => StatusCode::CONFLICT,
            _ => StatusCode::BAD_REQUEST,
        };
        Self(status, error.to_string())
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl From<JsonRejection> for Refused {
    fn from(error: JsonRejection) -> Self {
        Self(StatusCode::BAD_REQUEST, error.body_text())
    }
}

impl From<QueryRejection> for Refused {
    fn from(error: QueryRejection) -> Self {
        Self(StatusCode::BAD_REQUEST, error.body_text())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(Refusal { error: self.1 })).into_response()
    }
}
