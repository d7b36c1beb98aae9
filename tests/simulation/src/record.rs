//! The log of a run, line by line with virtual time, and the rules that were broken.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

/// A rule that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// When, since the start.
    pub at: Duration,
    /// Which rule.
    pub rule: &'static str,
    /// How it was broken.
    pub what: String,
}

/// The log of a run. All clones are the same log.
#[derive(Debug, Clone)]
pub struct Record(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    start: Instant,
    lines: Mutex<Vec<String>>,
    violations: Mutex<Vec<Violation>>,
}

impl Default for Record {
    fn default() -> Self {
        Self(Arc::new(Inner { start: Instant::now(), lines: Mutex::default(), violations: Mutex::default() }))
    }
}

impl Record {
    /// The time since the start, by the run's runtime.
    pub fn elapsed(&self) -> Duration {
        self.0.start.elapsed()
    }

    /// Logs one line.
    pub fn note(&self, who: &str, what: &str) {
        let line = format!("{:>10.4} {who:<9} {what}", self.elapsed().as_secs_f64());
        self.0.lines.lock().push(line);
    }

    /// Records that a rule is broken.
    pub fn broken(&self, rule: &'static str, what: String) {
        self.note("VIOLATION", &format!("{rule}: {what}"));
        self.0.violations.lock().push(Violation { at: self.elapsed(), rule, what });
    }

    /// The first rule that was broken, if any.
    pub fn violation(&self) -> Option<Violation> {
        self.0.violations.lock().first().cloned()
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.0.lines.lock().clone()
    }
}
