//! Errors in the contract's form: one ErrorInfo, a known reason, a code that belongs to it, small, without secrets.

use cloudprovider_proto::{ERROR_DOMAIN, defaults, v1alpha1::ErrorReason};
use prost::Message as _;
use tonic::Status;
use tonic_types::{ErrorInfo, RetryInfo, StatusExt as _, pb};

use super::{Trial, expect, failed};
use crate::{case::Outcome, provider::in_words};

/// The contents of an error.
#[derive(Debug, Clone)]
pub(crate) struct ErrorSeen {
    pub(crate) status: Status,
    /// The contract's reason, if there is exactly one and it is known.
    pub(crate) reason: Option<ErrorReason>,
    pub(crate) info: Option<ErrorInfo>,
    pub(crate) retry: Option<RetryInfo>,
    /// The type URLs of all details.
    types: Vec<String>,
}

impl ErrorSeen {
    pub(crate) fn words(&self) -> String {
        let reason = match &self.info {
            Some(info) => format!("reason {} of domain {:?}", info.reason, info.domain),
            None => "no ErrorInfo".to_owned(),
        };
        format!("{} ({reason})", in_words(&self.status))
    }
}

pub(crate) fn read(status: &Status) -> ErrorSeen {
    let details = status.get_error_details();
    let info = details.error_info().cloned();
    let ours = info.as_ref().filter(|info| info.domain == ERROR_DOMAIN);
    let reason = ours.and_then(|info| ErrorReason::from_wire_name(&info.reason));
    let inside = pb::Status::decode(status.details()).unwrap_or_default();
    ErrorSeen {
        reason,
        retry: details.retry_info().cloned(),
        info,
        types: inside.details.into_iter().map(|detail| detail.type_url).collect(),
        status: status.clone(),
    }
}

/// The contract's reason in an error.
pub(crate) fn reason_of(status: &Status) -> Option<ErrorReason> {
    read(status).reason
}

/// Checks everything that the contract requires of every error.
pub(crate) fn examine(trial: &Trial, status: &Status) -> Outcome {
    let seen = read(status);
    let Some(info) = &seen.info else {
        return Err(failed("google.rpc.ErrorInfo in every status other than OK", seen.words()));
    };
    expect(info.domain == ERROR_DOMAIN, format!("domain {ERROR_DOMAIN}"), seen.words())?;
    expect(seen.reason.is_some(), "the name of a reason of the contract", seen.words())?;
    let mut types = seen.types.clone();
    types.sort();
    types.dedup();
    expect(types.len() == seen.types.len(), "each type of detail at most once", &seen.types)?;
    well_formed(status, &trial.scenario().secrets)
}

/// Checks what holds even for an error that a gRPC library may have made.
pub(crate) fn well_formed(status: &Status, secrets: &[String]) -> Outcome {
    small(status)?;
    no_secret(secrets, status)?;
    let seen = read(status);
    match seen.reason {
        Some(reason) => {
            let fits = reason.codes().contains(&status.code());
            expect(fits, format!("a code of {:?}", reason.codes()), seen.words())
        }
        None => Ok(()),
    }
}

pub(crate) fn small(status: &Status) -> Outcome {
    let (bytes, most) = (status.details().len(), defaults::MAX_ERROR_DETAIL_BYTES);
    expect(bytes < most, format!("details below {most} bytes"), format!("{bytes} bytes"))
}

pub(crate) fn no_secret(secrets: &[String], status: &Status) -> Outcome {
    let details = String::from_utf8_lossy(status.details());
    for text in [status.message(), &details] {
        if let Some(found) = secret_in(text, secrets) {
            return Err(failed("no secret in an error", format!("{found} in {:?}", in_words(status))));
        }
    }
    Ok(())
}

/// Whatever looks like a secret.
fn secret_in(text: &str, known: &[String]) -> Option<String> {
    if known.iter().any(|secret| !secret.is_empty() && text.contains(secret)) {
        return Some("a secret of the scenario".to_owned());
    }
    let small = text.to_ascii_lowercase();
    let telling = ["password", "passwd", "secret", "token", "api_key", "apikey", "access_key", "private_key"];
    let assigned = |word: &&&str| {
        small.match_indices(**word).any(|(at, _)| {
            let behind = small[at + word.len()..].trim_start_matches(['"', '\'']);
            behind.starts_with(['=', ':']) && behind.len() > 1 && !behind[1..].starts_with(' ')
        })
    };
    let assigned = telling.iter().find(assigned).map(|word| format!("a value for {word}"));
    let marks = ["authorization: ", "bearer ey", "-----begin ", "akia"];
    assigned.or_else(|| marks.iter().find(|mark| small.contains(**mark)).map(|mark| format!("{mark:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_seen() {
        for (text, wanted) in [
            ("login failed: password=hunter2", true),
            ("{\"token\":\"abc\"}", true),
            ("Authorization: Basic eDp5", true),
            ("the page token was never issued", false),
            ("token: is missing", false),
            ("the SSH key is refused", false),
        ] {
            assert_eq!(secret_in(text, &[]).is_some(), wanted, "{text}");
        }
        assert!(secret_in("value hunter2 is bad", &["hunter2".into()]).is_some());
    }
}
