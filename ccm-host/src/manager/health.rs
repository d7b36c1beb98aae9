//! The health of the process: named checks in two sets.
//!
//! *Liveness* fails only if a restart would help: never because a cloud or the apiserver is unreachable. *Readiness*
//! fails while the process waits for something, and says for what. Checks answer at once from existing state; they
//! never call anything. [`super::serving`] serves them.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

/// Healthy, or why not, in words for people and without secrets.
pub type CheckResult = Result<(), String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    Live,
    Ready,
}

/// The registry of checks; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Checks(Arc<RwLock<Vec<Check>>>);

struct Check {
    probe: Probe,
    name: String,
    ask: Box<dyn Fn() -> CheckResult + Send + Sync>,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub name: String,
    pub result: CheckResult,
}

/// A check with its own state instead of a function; clones share it.
#[derive(Clone, Debug)]
pub struct Condition {
    state: Arc<Mutex<CheckResult>>,
}

impl Checks {
    /// An empty registry: live and ready.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

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

    /// Adds a check with its own state: it fails with `reason` until the caller changes that.
    pub fn condition(&self, probe: Probe, name: impl Into<String>, reason: impl Into<String>) -> Condition {
        let condition = Condition { state: Arc::new(Mutex::new(Err(reason.into()))) };
        let state = Arc::clone(&condition.state);
        self.add(probe, name, move || state.lock().clone());
        condition
    }

    /// Runs every check of a set, in the order in which they were added.
    #[must_use]
    pub fn ask_all(&self, probe: Probe) -> Vec<Outcome> {
        let checks = self.0.read();
        let set = checks.iter().filter(|check| check.probe == probe);
        set.map(|check| Outcome { name: check.name.clone(), result: (check.ask)() }).collect()
    }

    /// Runs one check; `None` if there is no such check.
    #[must_use]
    pub fn ask(&self, probe: Probe, name: &str) -> Option<CheckResult> {
        self.0.read().iter().find(|check| check.is(probe, name)).map(|check| (check.ask)())
    }
}

impl Check {
    fn is(&self, probe: Probe, name: &str) -> bool {
        self.probe == probe && self.name == name
    }
}

impl Condition {
    /// From now on the check is fine.
    pub fn ok(&self) {
        *self.state.lock() = Ok(());
    }

    /// From now on the check fails with this reason.
    pub fn failing(&self, reason: impl Into<String>) {
        *self.state.lock() = Err(reason.into());
    }
}

impl std::fmt::Debug for Check {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Check").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_apart_and_ordered() {
        let checks = Checks::new();
        checks.add(Probe::Ready, "second", || Err("not yet".to_owned()));
        checks.add(Probe::Ready, "first", || Ok(()));
        checks.add(Probe::Live, "ping", || Ok(()));
        let names: Vec<String> =
            checks.ask_all(Probe::Ready).into_iter().map(|outcome| outcome.name).collect();
        assert_eq!(names, ["second", "first"]);
        assert_eq!(checks.ask(Probe::Ready, "second"), Some(Err("not yet".to_owned())));
        assert_eq!(checks.ask(Probe::Live, "second"), None);
    }

    #[test]
    fn condition_follows_what_it_is_told() {
        let checks = Checks::new();
        let condition = checks.condition(Probe::Ready, "caches", "waiting for nodes");
        assert_eq!(checks.ask(Probe::Ready, "caches"), Some(Err("waiting for nodes".to_owned())));
        condition.ok();
        assert_eq!(checks.ask(Probe::Ready, "caches"), Some(Ok(())));
        condition.failing("watch lost");
        assert_eq!(checks.ask(Probe::Ready, "caches"), Some(Err("watch lost".to_owned())));
    }

    #[test]
    fn same_name_replaces() {
        let checks = Checks::new();
        checks.add(Probe::Live, "one", || Err("old".to_owned()));
        checks.add(Probe::Live, "one", || Ok(()));
        assert_eq!(checks.ask_all(Probe::Live).len(), 1);
        assert_eq!(checks.ask(Probe::Live, "one"), Some(Ok(())));
    }
}
