//! The health of the process: named checks in two sets.
//!
//! *Liveness* fails only if a restart would help: never because a cloud or the apiserver is unreachable. *Readiness*
//! fails while the process waits for something, and says for what. Checks answer at once from existing state; they
//! never call anything. Out: `/livez`, `/readyz` and `/healthz` (the same as `/livez`) with `?verbose` and
//! `?exclude=name`, each check alone below the first two, in the format of Kubernetes components.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use parking_lot::RwLock;

use super::headers;

/// Healthy, or why not, in words for people and without secrets.
pub type CheckResult = Result<(), String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    Live,
    Ready,
}

/// The registry of checks, empty at first: live and ready. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Checks(Arc<RwLock<Vec<Check>>>);

struct Check {
    probe: Probe,
    name: String,
    ask: Box<dyn Fn() -> CheckResult + Send + Sync>,
}

impl Checks {
    /// Adds a check, or replaces the one of the same name. `ask` must answer at once.
    pub fn add(
        &self,
        probe: Probe,
        name: impl Into<String>,
        ask: impl Fn() -> CheckResult + Send + Sync + 'static,
    ) {
        let check = Check { probe, name: name.into(), ask: Box::new(ask) };
        let mut checks = self.0.write();
        match checks.iter_mut().find(|other| other.is(probe, &check.name)) {
            Some(other) => *other = check,
            None => checks.push(check),
        }
    }

    /// Runs every check of a set, in the order in which they were added; with their names.
    pub fn ask_all(&self, probe: Probe) -> Vec<(String, CheckResult)> {
        let checks = self.0.read();
        let set = checks.iter().filter(|check| check.probe == probe);
        set.map(|check| (check.name.clone(), (check.ask)())).collect()
    }

    /// Runs one check; `None` if there is no such check.
    pub fn ask(&self, probe: Probe, name: &str) -> Option<CheckResult> {
        self.0.read().iter().find(|check| check.is(probe, name)).map(|check| (check.ask)())
    }

    pub(super) fn router(self) -> Router {
        let [live, ready] = [Probe::Live, Probe::Ready].map(|probe| {
            get(async move |State(checks): State<Self>, RawQuery(query): RawQuery| {
                all(&checks, probe, &query.unwrap_or_default())
            })
        });
        let [live_check, ready_check] = [Probe::Live, Probe::Ready].map(|probe| {
            get(async move |State(checks): State<Self>, Path(name): Path<String>| one(&checks, probe, &name))
        });
        Router::new()
            .route("/livez", live.clone())
            .route("/healthz", live)
            .route("/readyz", ready)
            .route("/livez/{check}", live_check)
            .route("/readyz/{check}", ready_check)
            .with_state(self)
    }
}

impl Check {
    fn is(&self, probe: Probe, name: &str) -> bool {
        self.probe == probe && self.name == name
    }
}

impl std::fmt::Debug for Check {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Check").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The response over all checks of a set: `ok`, or every line; a failure is always reported in full.
fn all(checks: &Checks, probe: Probe, query: &str) -> Response {
    // Names of checks need no escapes, so the query is split but not decoded.
    let pairs = || query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let verbose = pairs().any(|(key, _)| key == "verbose");
    let excluded = pairs().filter(|(key, name)| *key == "exclude" && !name.is_empty());
    let exclude: Vec<_> = excluded.map(|(_, name)| name).collect();
    let outcomes = checks.ask_all(probe);
    let healthy = outcomes.iter().all(|(name, result)| result.is_ok() || exclude.contains(&name.as_str()));
    let status = if healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    if healthy && !verbose {
        return text(status, "ok".to_owned());
    }
    text(status, lines(probe, &outcomes, &exclude, healthy))
}

/// The response of one check.
fn one(checks: &Checks, probe: Probe, name: &str) -> Response {
    match checks.ask(probe, name) {
        None => text(StatusCode::NOT_FOUND, format!("there is no check {name:?}\n")),
        Some(Ok(())) => text(StatusCode::OK, "ok".to_owned()),
        Some(Err(reason)) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{name} failed: {reason}\n")),
    }
}

fn lines(probe: Probe, outcomes: &[(String, CheckResult)], exclude: &[&str], healthy: bool) -> String {
    let mut text = String::new();
    for (name, result) in outcomes {
        text += &match result {
            _ if exclude.contains(&name.as_str()) => format!("[+]{name} excluded: ok\n"),
            Ok(()) => format!("[+]{name} ok\n"),
            Err(reason) => format!("[-]{name} failed: {reason}\n"),
        };
    }
    for name in exclude.iter().filter(|name| outcomes.iter().all(|(known, _)| known != *name)) {
        text += &format!("warn: there is no check {name:?} to exclude\n");
    }
    let path = match probe {
        Probe::Live => "livez",
        Probe::Ready => "readyz",
    };
    text + &format!("{path} check {}\n", if healthy { "passed" } else { "failed" })
}

fn text(status: StatusCode, body: String) -> Response {
    (status, headers(), body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_apart_and_ordered() {
        let checks = Checks::default();
        checks.add(Probe::Ready, "second", || Err("not yet".to_owned()));
        checks.add(Probe::Ready, "first", || Ok(()));
        checks.add(Probe::Live, "ping", || Ok(()));
        let names: Vec<String> = checks.ask_all(Probe::Ready).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["second", "first"]);
        assert_eq!(checks.ask(Probe::Ready, "second"), Some(Err("not yet".to_owned())));
        assert_eq!(checks.ask(Probe::Live, "second"), None);
    }

    #[test]
    fn same_name_replaces() {
        let checks = Checks::default();
        checks.add(Probe::Live, "one", || Err("old".to_owned()));
        checks.add(Probe::Live, "one", || Ok(()));
        assert_eq!(checks.ask_all(Probe::Live).len(), 1);
        assert_eq!(checks.ask(Probe::Live, "one"), Some(Ok(())));
    }
}
