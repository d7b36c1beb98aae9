//! Values of flags, and the errors about invalid ones: the flag, its value, what is wrong, and what to do instead.
//!
//! In: the text of one value. Out: its meaning, or what is wrong and what to do instead. Each part of the host parses
//! its own settings with these; the host's `manager::flags` combines them into one command line.

pub mod duration;

use std::{fmt, time::Duration};

use duration::DurationError;

/// More parallel writes help no cluster and would only hide a typing mistake.
const MOST_WORKERS: usize = 1000;

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
    pub fn of(self, name: &str, value: &str) -> FlagError {
        let given = if self.is_secret { format!("--{name}") } else { format!("--{name}={value}") };
        FlagError { given, problem: self.problem, remedy: self.remedy }
    }
}

/// Refuses a URL, with or without its scheme, that carries credentials.
pub fn without_password(url: &str, remedy: &str) -> Result<(), Wrong> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    if rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
        return Err(Wrong {
            is_secret: true,
            ..Wrong::new("the URL carries a user name or password", remedy)
        });
    }
    Ok(())
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
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All mistakes, in the order in which they were found.
    pub fn into_vec(self) -> Vec<FlagError> {
        self.0
    }
}

/// A duration longer than zero.
///
/// # Errors
/// The text is not a duration, or is zero.
pub fn period(text: &str) -> Result<Duration, Wrong> {
    match duration(text)? {
        Duration::ZERO => Err(Wrong::new("is zero", "give a duration such as 30s or 5m")),
        duration => Ok(duration),
    }
}

/// A duration, zero included.
///
/// # Errors
/// The text is not a duration.
pub fn duration(text: &str) -> Result<Duration, Wrong> {
    duration::parse(text).map_err(|problem| {
        let remedy = match problem {
            DurationError::Negative => format!("give {}", text.trim_start_matches('-')),
            DurationError::NoUnit => "add one of ms, s, m, h, for example 30s".to_owned(),
            DurationError::Malformed => "write it like 250ms, 30s or 1h30m".to_owned(),
            DurationError::TooLong => "give less".to_owned(),
        };
        Wrong::new(problem.to_string(), remedy)
    })
}

/// A number of workers: 1 to 1000. `zero` says what would happen without workers.
///
/// # Errors
/// The text is another number, or none.
pub fn workers(text: &str, zero: &str) -> Result<usize, Wrong> {
    match text.parse::<usize>() {
        Ok(0) => Err(Wrong::new(zero, "give 1 or more")),
        Ok(count) if count > MOST_WORKERS => {
            Err(Wrong::new("is too many", format!("give at most {MOST_WORKERS}")))
        }
        Ok(count) => Ok(count),
        Err(_) => Err(Wrong::new("is not a whole number", format!("give a number from 1 to {MOST_WORKERS}"))),
    }
}

/// A whole number of at least `least`.
///
/// # Errors
/// The number is smaller, or the text is none.
pub fn at_least(text: &str, least: u32) -> Result<u32, Wrong> {
    match text.parse::<u32>() {
        Ok(number) if number >= least => Ok(number),
        Ok(_) => Err(Wrong::new("is too small", format!("give {least} or more"))),
        Err(_) => Err(Wrong::new("is not a whole number", format!("give a number of {least} or more"))),
    }
}

/// A switch, in the spellings that Go accepts.
///
/// # Errors
/// The text is none of them.
pub fn switch(text: &str) -> Result<bool, Wrong> {
    match text {
        "true" | "TRUE" | "True" | "t" | "T" | "1" => Ok(true),
        "false" | "FALSE" | "False" | "f" | "F" | "0" => Ok(false),
        _ => Err(Wrong::new("is neither true nor false", "give true or false")),
    }
}

/// Splits `name=rest`; `flag` and `shape` are for the error.
///
/// # Errors
/// A part is missing.
pub fn named<'a>(flag: &str, text: &'a str, shape: &str) -> Result<(&'a str, &'a str), Wrong> {
    match text.split_once('=') {
        Some((name, rest)) if !name.is_empty() && !rest.is_empty() => Ok((name, rest)),
        _ => Err(Wrong::new(format!("is not {shape}"), format!("write --{flag} {shape}"))),
    }
}

/// Splits `NAMESPACE/NAME`, which names a Secret.
///
/// # Errors
/// A part is missing, or there are more.
pub fn secret<'a>(text: &'a str, example: &str) -> Result<(&'a str, &'a str), Wrong> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace, name))
        }
        _ => Err(Wrong::new("names no Secret", format!("give NAMESPACE/NAME, for example {example}"))),
    }
}

/// The items of comma-separated lists, without empty ones.
pub fn listed(lists: &[String]) -> impl Iterator<Item = &str> {
    lists.iter().flat_map(|list| list.split(',')).map(str::trim).filter(|item| !item.is_empty())
}
