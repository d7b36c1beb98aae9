//! A flag that cannot be honoured: which one, its value, what is wrong, and what to do instead.

use std::fmt;

/// One mistake on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagError {
    /// What was given, as `--name` or `--name=value`.
    pub given: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to do instead.
    pub remedy: String,
}

impl FlagError {
    /// A mistake in the value of a flag.
    pub fn value(name: &str, value: &str, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { given: format!("--{name}={value}"), problem: problem.into(), remedy: remedy.into() }
    }

    /// A mistake that no single value shows.
    pub fn flag(name: &str, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { given: format!("--{name}"), problem: problem.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for FlagError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}: {}", self.given, self.problem, self.remedy)
    }
}

impl std::error::Error for FlagError {}

/// The mistakes found so far: all are reported at once, so nothing stops at the first.
#[derive(Debug, Default)]
pub(super) struct Mistakes(Vec<FlagError>);

impl Mistakes {
    pub(super) fn add(&mut self, error: FlagError) {
        self.0.push(error);
    }

    /// The value, or `None` after noting why there is none.
    pub(super) fn keep<T>(&mut self, result: Result<T, FlagError>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    pub(super) fn extend(&mut self, errors: impl IntoIterator<Item = FlagError>) {
        self.0.extend(errors);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_vec(self) -> Vec<FlagError> {
        self.0
    }
}
