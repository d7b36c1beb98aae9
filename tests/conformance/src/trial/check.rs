//! Checks: each reports what the contract requires and what happened instead.

use std::fmt::Debug;

use cloudprovider_proto::v1alpha1::ErrorReason;
use tonic::{Code, Response, Status};

use super::errors::{self, ErrorSeen};
use crate::{
    case::{Outcome, Stop},
    provider::in_words,
};

/// The contract was broken.
pub(crate) fn failed(expected: impl Into<String>, seen: impl Into<String>) -> Stop {
    Stop::Failed { expected: expected.into(), seen: seen.into() }
}

/// It holds, or the case ends.
pub(crate) fn expect(holds: bool, expected: impl Into<String>, seen: impl Debug) -> Outcome {
    if holds { Ok(()) } else { Err(failed(expected, format!("{seen:?}"))) }
}

/// Both are the same, or the case ends.
pub(crate) fn same<T: PartialEq + Debug>(what: &str, seen: &T, wanted: &T) -> Outcome {
    expect(seen == wanted, format!("{what} {wanted:?}"), seen)
}

/// An annotation's key is under one of the prefixes that the provider advertised for it.
pub(crate) fn under(prefixes: &[String], key: &str) -> Outcome {
    let is_its_own = prefixes.iter().any(|prefix| !prefix.is_empty() && key.starts_with(prefix.as_str()));
    expect(is_its_own, format!("an annotation under one of {prefixes:?}"), key)
}

/// A text of at most this many bytes.
pub(crate) fn within_bytes(what: &str, text: &str, most: usize) -> Outcome {
    expect(text.len() <= most, format!("{what} of at most {most} bytes"), text.len())
}

/// The only one of these results.
pub(crate) fn single<T: Debug>(expected: impl Into<String>, mut results: Vec<T>) -> Result<T, Stop> {
    match results.pop() {
        Some(result) if results.is_empty() => Ok(result),
        other => Err(failed(expected, format!("{results:?} {other:?}"))),
    }
}

/// The response, which must be OK.
pub(crate) fn good<T>(what: &str, answer: Result<Response<T>, Status>) -> Result<T, Stop> {
    answer.map(Response::into_inner).map_err(|status| failed(format!("{what}: OK"), in_words(&status)))
}

/// The error, which must have this reason and a code that belongs to it.
pub(crate) fn refused<T: Debug>(
    what: &str,
    answer: Result<Response<T>, Status>,
    reason: ErrorReason,
) -> Result<ErrorSeen, Stop> {
    let codes = reason.codes();
    let expected = || format!("{what}: {} with code {codes:?}", reason.wire_name());
    let status = match answer {
        Ok(answer) => return Err(failed(expected(), format!("OK: {:?}", answer.into_inner()))),
        Err(status) => status,
    };
    let seen = errors::read(&status);
    let fits = seen.reason == Some(reason) && codes.contains(&status.code());
    if fits { Ok(seen) } else { Err(failed(expected(), seen.words())) }
}

/// The answer of a library for a method that nobody serves, or the contract's reason for it.
pub(crate) fn is_bare_unimplemented(status: &Status) -> bool {
    status.code() == Code::Unimplemented
}
