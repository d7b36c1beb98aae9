//! What was said about each open request, so that it is said and counted once.

use std::collections::HashMap;

use super::metrics::CsrMetrics;

/// The last thing said about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Saying {
    Waiting(&'static str),
    /// Denied, refused or ignored, with the result's name in the metric.
    Over(&'static str, &'static str),
}

/// By uid. Only requests that exist take memory.
#[derive(Debug)]
pub(super) struct Told {
    last: HashMap<String, Saying>,
    metrics: CsrMetrics,
}

impl Told {
    pub(super) fn new(metrics: CsrMetrics) -> Self {
        Self { last: HashMap::new(), metrics }
    }

    /// Whether this is news about the request.
    pub(super) fn is_news(&mut self, uid: &str, saying: Saying) -> bool {
        let before = self.last.get(uid).copied();
        if before == Some(saying) {
            return false;
        }
        self.forget(uid);
        match saying {
            Saying::Waiting(reason) => self.metrics.waiting(reason, 1),
            Saying::Over(result, reason) => self.metrics.count(result, reason),
        }
        self.last.insert(uid.to_owned(), saying);
        true
    }

    /// Nothing more will be said about it.
    pub(super) fn forget(&mut self, uid: &str) {
        if let Some(Saying::Waiting(reason)) = self.last.remove(uid) {
            self.metrics.waiting(reason, -1);
        }
    }
}
