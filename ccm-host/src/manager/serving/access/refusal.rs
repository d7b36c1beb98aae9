//! Why a request is refused, in the form that Kubernetes clients read.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

#[derive(Debug)]
pub(super) enum Refusal {
    /// The process has no access to the apiserver yet.
    NotYet,
    /// The apiserver did not answer.
    Unanswered,
    /// The credentials are not accepted, and why.
    Unknown(String),
    Forbidden {
        user: String,
        verb: String,
        path: String,
    },
}

impl Refusal {
    /// Logs the exact error, which names addresses, instead of sending it.
    pub(super) fn unanswered(error: anyhow::Error) -> Self {
        tracing::warn!(error = format!("{error:#}"), "cannot ask the apiserver who may read this");
        Self::Unanswered
    }

    fn parts(self) -> (StatusCode, &'static str, String) {
        match self {
            Self::NotYet => {
                let why = "the process is starting, and cannot ask the apiserver yet who may read this";
                (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", why.to_owned())
            }
            Self::Unanswered => {
                let why = "the apiserver does not say who may read this; the log says why";
                (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", why.to_owned())
            }
            Self::Unknown(why) => (StatusCode::UNAUTHORIZED, "Unauthorized", format!("Unauthorized: {why}")),
            Self::Forbidden { user, verb, path } => {
                let why = format!(
                    "forbidden: User {user:?} cannot {verb} path {path:?}: bind a ClusterRole with nonResourceURLs \
                     [{path:?}] and verbs [{verb:?}] to it"
                );
                (StatusCode::FORBIDDEN, "Forbidden", why)
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (code, reason, message) = self.parts();
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code.as_u16(),
        });
        let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let caching = (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store"));
        let sniffing = (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        let mut response = (code, [kind, caching, sniffing], format!("{status}\n")).into_response();
        if code == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
