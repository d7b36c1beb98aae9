//! The responses of the health endpoints, and refusals of all, in the format of Kubernetes components.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::manager::health::{Checks, Outcome, Probe};

/// The options in a request's query.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    verbose: bool,
    exclude: Vec<String>,
}

/// The response over all checks of a set: `ok`, or every line; a failure is always reported in full.
pub(super) fn all(checks: &Checks, probe: Probe, query: Option<&str>) -> Response {
    let wanted = wanted(query.unwrap_or_default());
    let outcomes = checks.ask_all(probe);
    let healthy =
        outcomes.iter().all(|outcome| outcome.result.is_ok() || wanted.exclude.contains(&outcome.name));
    let status = if healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    if healthy && !wanted.verbose {
        return text(status, "ok".to_owned());
    }
    text(status, lines(probe, &outcomes, &wanted.exclude, healthy))
}

/// The response of one check.
pub(super) fn one(checks: &Checks, probe: Probe, name: &str) -> Response {
    match checks.ask(probe, name) {
        None => text(StatusCode::NOT_FOUND, format!("there is no check {name:?}\n")),
        Some(Ok(())) => text(StatusCode::OK, "ok".to_owned()),
        Some(Err(reason)) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{name} failed: {reason}\n")),
    }
}

fn lines(probe: Probe, outcomes: &[Outcome], exclude: &[String], healthy: bool) -> String {
    let mut text = String::new();
    for Outcome { name, result } in outcomes {
        text += &match result {
            _ if exclude.contains(name) => format!("[+]{name} excluded: ok\n"),
            Ok(()) => format!("[+]{name} ok\n"),
            Err(reason) => format!("[-]{name} failed: {reason}\n"),
        };
    }
    for name in exclude.iter().filter(|name| outcomes.iter().all(|outcome| outcome.name != **name)) {
        text += &format!("warn: there is no check {name:?} to exclude\n");
    }
    let path = match probe {
        Probe::Live => "livez",
        Probe::Ready => "readyz",
    };
    text + &format!("{path} check {}\n", if healthy { "passed" } else { "failed" })
}

/// Names of checks need no escapes, so the query is split but not decoded.
fn wanted(query: &str) -> Wanted {
    let mut wanted = Wanted::default();
    for pair in query.split('&') {
        match pair.split_once('=').unwrap_or((pair, "")) {
            ("verbose", _) => wanted.verbose = true,
            ("exclude", name) if !name.is_empty() => wanted.exclude.push(name.to_owned()),
            _ => {}
        }
    }
    wanted
}

fn text(status: StatusCode, body: String) -> Response {
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    let kind = (header::CONTENT_TYPE, plain);
    (status, [kind], headers(), body).into_response()
}

/// For every answer: it is true only now, and nothing but what its type says.
pub(super) fn headers() -> [(HeaderName, HeaderValue); 2] {
    [
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ]
}

/// A refusal, in the form that Kubernetes clients read.
pub(super) fn status(code: StatusCode, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    })
}
