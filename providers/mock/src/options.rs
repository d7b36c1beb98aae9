//! The options of a fault, as its text or JSON gives them; `fault::text` has checked them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::duration;

/// Values by key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Options(pub(crate) Map<String, Value>);

impl Options {
    /// A text; empty if it is absent.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// A flag; false if it is absent.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool).unwrap_or_default()
    }

    /// A number; 0 if it is absent.
    pub(crate) fn number(&self, key: &str) -> u64 {
        self.0.get(key).and_then(Value::as_u64).unwrap_or_default()
    }

    /// A duration, if it is present.
    pub(crate) fn time(&self, key: &str) -> Option<Duration> {
        duration::parse(self.text(key)).ok()
    }
}
