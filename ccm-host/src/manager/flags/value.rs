//! The kinds of value that several flags share: text in, typed value or a [`FlagError`] out.

use std::time::Duration;

use super::error::FlagError;
use crate::manager::duration::{self, DurationError};

/// More parallel writes than this help no cluster and would only hide a typing mistake.
const MOST_WORKERS: usize = 1000;

/// A duration longer than zero.
pub(super) fn period(name: &str, value: &str) -> Result<Duration, FlagError> {
    match any_duration(name, value)? {
        Duration::ZERO => Err(FlagError::value(name, value, "is zero", "give a duration such as 30s or 5m")),
        duration => Ok(duration),
    }
}

/// A duration, zero included.
pub(super) fn any_duration(name: &str, value: &str) -> Result<Duration, FlagError> {
    duration::parse(value).map_err(|problem| {
        let remedy = match problem {
            DurationError::Negative => format!("give {}", value.trim_start_matches('-')),
            DurationError::NoUnit => "add one of ms, s, m, h, for example 30s".to_owned(),
            DurationError::Malformed => "write it like 250ms, 30s or 1h30m".to_owned(),
            DurationError::TooLong => "give less".to_owned(),
        };
        FlagError::value(name, value, problem.to_string(), remedy)
    })
}

/// How much is done at the same time: 1 to 1000. `zero` says what would happen without workers.
pub(super) fn workers(name: &str, value: &str, zero: &str) -> Result<usize, FlagError> {
    match value.parse::<usize>() {
        Ok(0) => Err(FlagError::value(name, value, zero, "give 1 or more")),
        Ok(count) if count > MOST_WORKERS => {
            Err(FlagError::value(name, value, "is too many", format!("give at most {MOST_WORKERS}")))
        }
        Ok(count) => Ok(count),
        Err(_) => Err(FlagError::value(
            name,
            value,
            "is not a whole number",
            format!("give a number from 1 to {MOST_WORKERS}"),
        )),
    }
}

/// A whole number of at least `least`.
pub(super) fn at_least(name: &str, value: &str, least: u32) -> Result<u32, FlagError> {
    match value.parse::<u32>() {
        Ok(number) if number >= least => Ok(number),
        Ok(_) => Err(FlagError::value(name, value, "is too small", format!("give {least} or more"))),
        Err(_) => Err(FlagError::value(
            name,
            value,
            "is not a whole number",
            format!("give a number of {least} or more"),
        )),
    }
}

/// A switch, in the spellings that Go accepts.
pub(super) fn switch(name: &str, value: &str) -> Result<bool, FlagError> {
    match value {
        "true" | "TRUE" | "True" | "t" | "T" | "1" => Ok(true),
        "false" | "FALSE" | "False" | "f" | "F" | "0" => Ok(false),
        _ => Err(FlagError::value(name, value, "is neither true nor false", "give true or false")),
    }
}

/// `name=rest`, for flags that say something about one provider.
pub(super) fn named<'a>(flag: &str, value: &'a str, shape: &str) -> Result<(&'a str, &'a str), FlagError> {
    match value.split_once('=') {
        Some((name, rest)) if !name.is_empty() && !rest.is_empty() => Ok((name, rest)),
        _ => Err(FlagError::value(flag, value, format!("is not {shape}"), format!("write --{flag} {shape}"))),
    }
}
