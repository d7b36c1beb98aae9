//! A flag error: the flag, its value, what is wrong, and what to do instead.

use std::fmt;

/// An invalid value of a flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}: {remedy}")]
pub struct Wrong {
    /// What is wrong with it.
    pub problem: String,
    /// What to do instead.
    pub remedy: String,
    /// The value holds a password and must not be repeated.
    pub is_secret: bool,
}

impl Wrong {
    /// From a problem and its remedy.
    pub fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: remedy.into(), is_secret: false }
    }

    /// Turns this into the mistake of a flag with this value.
    #[must_use]
    pub fn of(self, name: &str, value: &str) -> FlagError {
        let given = if self.is_secret { format!("--{name}") } else { format!("--{name}={value}") };
        FlagError { given, problem: self.problem, remedy: self.remedy }
    }
}

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

/// All mistakes found so far: they are reported together, so nothing stops at the first.
#[derive(Debug, Default)]
pub struct Mistakes(Vec<FlagError>);

impl Mistakes {
    pub fn add(&mut self, error: FlagError) {
        self.0.push(error);
    }

    /// Adds a mistake about the value of a flag.
    pub fn refuse(
        &mut self,
        name: &str,
        value: impl fmt::Display,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(Wrong::new(problem, remedy).of(name, &value.to_string()));
    }

    /// The value, or `None` after adding the mistake.
    pub fn keep<T>(&mut self, result: Result<T, FlagError>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    /// Whether these flags are free of mistakes: defaults replace invalid values and prove nothing about what was
    /// given.
    #[must_use]
    pub fn spare(&self, names: &[&str]) -> bool {
        let name = |error: &FlagError| {
            let given = error.given.trim_start_matches("--");
            given.split_once('=').map_or(given, |(name, _)| name).to_owned()
        };
        !self.0.iter().any(|error| names.contains(&name(error).as_str()))
    }

    pub fn extend(&mut self, errors: impl IntoIterator<Item = FlagError>) {
        self.0.extend(errors);
    }

    /// Whether there are no mistakes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All mistakes, in the order in which they were found.
    #[must_use]
    pub fn into_vec(self) -> Vec<FlagError> {
        self.0
    }
}
