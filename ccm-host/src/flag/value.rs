//! Parsers for values that several flags share.

use std::time::Duration;

use super::duration::{self, DurationError};
use super::mistake::Wrong;

/// More parallel writes help no cluster and would only hide a typing mistake.
const MOST_WORKERS: usize = 1000;

/// A duration longer than zero.
///
/// # Errors
/// The text is no duration, or zero.
pub fn period(text: &str) -> Result<Duration, Wrong> {
    match duration(text)? {
        Duration::ZERO => Err(Wrong::new("is zero", "give a duration such as 30s or 5m")),
        duration => Ok(duration),
    }
}

/// A duration, zero included.
///
/// # Errors
/// The text is no duration.
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
