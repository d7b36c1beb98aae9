//! Information about the process: `/configz`, `/flagz`, `/statusz`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use jiff::Timestamp;

use super::configz;
use crate::manager::build_info;
use crate::manager::flags::Settings;

const NAME: &str = "cloud-controller-manager";
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                       guarantees and is for debugging purposes only.";

/// All pages, built once: nothing in them changes but the time.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    configz: serde_json::Value,
    flagz: String,
    started: Timestamp,
}

impl Pages {
    pub(super) fn new(settings: &Settings) -> Self {
        let flags: String = settings.flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        let inner = Inner {
            configz: configz::configz(settings),
            flagz: format!("{NAME} flagz\n{WARNING}\n\n{flags}"),
            started: Timestamp::now(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(super) fn router(self) -> Router {
        Router::new()
            .route("/configz", get(show_configz))
            .route("/flagz", get(show_flagz))
            .route("/statusz", get(show_statusz))
            .with_state(self)
    }
}

impl Inner {
    fn statusz(&self, now: Timestamp) -> String {
        let up = now.duration_since(self.started).as_secs();
        format!(
            "{NAME} statusz\n{WARNING}\n\nStarted: {started}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\n\
             Binary version: {version}\nPaths: /configz /flagz /healthz /livez /metrics /readyz /shadow /state /status /statusz\n",
            started = self.started.strftime("%Y-%m-%dT%H:%M:%SZ"),
            hours = up / 3600,
            minutes = up / 60 % 60,
            seconds = up % 60,
            version = build_info::raw(),
        )
    }
}

async fn show_configz(State(pages): State<Pages>) -> Json<serde_json::Value> {
    Json(pages.inner.configz.clone())
}

async fn show_flagz(State(pages): State<Pages>) -> Response {
    text(pages.inner.flagz.clone())
}

async fn show_statusz(State(pages): State<Pages>) -> Response {
    text(pages.inner.statusz(Timestamp::now()))
}

fn text(body: String) -> Response {
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    ([kind], body).into_response()
}
