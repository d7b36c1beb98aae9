//! Errors of calls. `ccm_reconcile` decides when to retry.
//!
//! In: a gRPC status, an item's error, or what this side found. Out: one type that controllers can trust and match on.
//!
//! What libraries really return on a timeout, a kill or an oversized message is not what the gRPC guide promises. This
//! is the published table; the first matching row wins.
//!
//! | What arrives                                                          | What a controller sees                      |
//! |-----------------------------------------------------------------------|---------------------------------------------|
//! | any code, `ErrorInfo` of domain `cloudprovider.ccm`, a known reason   | that code and reason, and `RetryInfo`       |
//! | the same with a reason of a newer contract                            | that code, no reason                        |
//! | any code whose source is the end of the connection: GOAWAY, I/O       | UNAVAILABLE                                 |
//! | CANCELLED "Timeout expired", or our own guard                         | DEADLINE_EXCEEDED                           |
//! | CANCELLED "operation was canceled" (a connection that died early)     | UNAVAILABLE                                 |
//! | CANCELLED or UNKNOWN "h2 protocol error: error reading a body ..."    | UNAVAILABLE                                 |
//! | CANCELLED "h2 protocol error ..." (the handler panicked)              | INTERNAL                                    |
//! | UNKNOWN "transport error", "connection error", "h2 protocol error"    | UNAVAILABLE                                 |
//! | OUT_OF_RANGE, RESOURCE_EXHAUSTED or INTERNAL about a message's size   | OUT_OF_RANGE: [`CloudError::is_too_large`]  |
//! | UNIMPLEMENTED                                                         | UNIMPLEMENTED, METHOD_NOT_SUPPORTED         |
//! | anything else                                                         | the same code, no reason: it proves nothing |
//!
//! An item's error has no code of its own: it gets the code that `errors.proto` assigns to its reason.

#[cfg(test)]
mod tests;

use std::{error::Error as _, time::Duration};

use ccm_base::text::append_sources;
pub use cloudprovider_proto::v1alpha1::ErrorReason;
use cloudprovider_proto::{ERROR_DOMAIN, code_name, defaults, v1alpha1 as pb};
use prost::Message as _;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::findings::{
    Findings,
    duration::{RETRY, within},
    shown,
};

/// A call, or one item of a call, that did not succeed. It proves nothing about existence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{method}: {message}")]
pub struct CloudError {
    /// Name of the RPC, for example `BatchGetInstances`.
    pub method: &'static str,
    /// The contract's reason; `None` if the status carried none: a transport error, a timeout, a foreign server.
    pub reason: Option<ErrorReason>,
    /// The canonical code after normalisation.
    pub code: Code,
    /// For people; without secrets.
    pub message: String,
    /// The delay that the provider asked for.
    pub retry_after: Option<Duration>,
    /// The services whose calls share an exhausted quota, separated by commas; empty if that is not known.
    pub scope: String,
    /// There was no connection, or it broke before the provider answered.
    pub is_unanswered: bool,
}

impl CloudError {
    /// The error of a call.
    pub(super) fn of_status(method: &'static str, status: &Status, findings: &mut Findings) -> Self {
        let ours = status.get_details_error_info().filter(|info| info.domain == ERROR_DOMAIN);
        let retry_after = retry_delay(status).and_then(|given| within(RETRY, given, findings));
        let scope = ours.as_ref().and_then(|info| info.metadata.get("scope").cloned()).unwrap_or_default();
        let (code, reason) = match ours {
            Some(info) => (status.code(), ErrorReason::from_wire_name(&info.reason)),
            None if connection_ended(status) => (Code::Unavailable, None),
            None => bare(status.code(), status.message()),
        };
        // With its sources, since a transport's status says little by itself.
        let mut message = status.message().to_owned();
        append_sources(&mut message, status.source());
        let message = shown(&message, defaults::MAX_MESSAGE_TEXT_BYTES);
        // A status that came over the wire has no source.
        let is_unanswered = code == Code::Unavailable && reason.is_none() && status.source().is_some();
        Self { method, reason, code, message, retry_after, scope, is_unanswered }
    }

    /// The error of one item.
    pub(super) fn of_item(method: &'static str, error: pb::ItemError, findings: &mut Findings) -> Self {
        let reason = match pb::ErrorReason::try_from(error.reason) {
            Ok(ErrorReason::Unspecified) | Err(_) => ErrorReason::InternalError,
            Ok(reason) => reason,
        };
        Self {
            method,
            reason: Some(reason),
            code: reason.code(),
            message: shown(&error.message, defaults::MAX_MESSAGE_TEXT_BYTES),
            retry_after: error.retry_after.and_then(|given| within(RETRY, given, findings)),
            scope: String::new(),
            is_unanswered: false,
        }
    }

    /// The call exceeded its deadline.
    pub(super) fn deadline_exceeded(method: &'static str, deadline: Duration) -> Self {
        let message = format!("no response within {deadline:?}; the outcome is not known");
        Self::without_reason(method, Code::DeadlineExceeded, message)
    }

    /// There is no provider to call.
    pub(super) fn unavailable(method: &'static str, message: impl Into<String>) -> Self {
        Self { is_unanswered: true, ..Self::without_reason(method, Code::Unavailable, message) }
    }

    /// The provider broke the contract.
    pub(super) fn defect(method: &'static str, message: impl Into<String>) -> Self {
        Self::local(method, ErrorReason::InternalError, message)
    }

    /// An error detected on this side.
    pub(super) fn local(method: &'static str, reason: ErrorReason, message: impl Into<String>) -> Self {
        Self { reason: Some(reason), ..Self::without_reason(method, reason.code(), message) }
    }

    /// A single object that fits into no message.
    pub(super) fn too_large(method: &'static str, message: impl Into<String>) -> Self {
        Self::without_reason(method, Code::OutOfRange, message)
    }

    pub fn without_reason(method: &'static str, code: Code, message: impl Into<String>) -> Self {
        Self {
            method,
            reason: None,
            code,
            message: message.into(),
            retry_after: None,
            scope: String::new(),
            is_unanswered: false,
        }
    }

    /// The reason as used in metrics and Events; the code if there is no reason.
    pub fn label(&self) -> &'static str {
        self.reason.map_or_else(|| code_name(self.code), ErrorReason::wire_name)
    }

    /// Whether the message exceeded either end's limit: it must be split, or can never be sent.
    pub fn is_too_large(&self) -> bool {
        self.reason.is_none() && self.code == Code::OutOfRange
    }

    /// Whether this error suggests that the provider is being replaced, so that its next process will answer.
    pub fn is_of_replacement(&self) -> bool {
        self.is_unanswered || self.is(ErrorReason::ShuttingDown)
    }

    /// Whether nobody said what became of the call: it may still be carried out.
    pub fn is_silence(&self) -> bool {
        self.is_unanswered || (self.reason.is_none() && self.code == Code::DeadlineExceeded)
    }

    /// Whether the error has this reason.
    pub fn is(&self, reason: ErrorReason) -> bool {
        self.reason == Some(reason)
    }
}

/// Decoded by hand: tonic-types converts the duration first, which overflows on `i64::MIN`.
fn retry_delay(status: &Status) -> Option<prost_types::Duration> {
    let details = tonic_types::pb::Status::decode(status.details()).ok()?.details;
    let retry = details.iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
    tonic_types::pb::RetryInfo::decode(retry.value.as_slice()).ok()?.retry_delay
}

fn bare(code: Code, message: &str) -> (Code, Option<ErrorReason>) {
    let broken = || {
        ["transport error", "connection error", "h2 protocol error", "error reading a body", "broken pipe"]
            .iter()
            .any(|start| message.to_ascii_lowercase().starts_with(start))
    };
    let code = match code {
        Code::Cancelled if message == "Timeout expired" => Code::DeadlineExceeded,
        Code::Cancelled if message.contains("operation was canceled") => Code::Unavailable,
        Code::Cancelled if message.contains("error reading a body") => Code::Unavailable,
        Code::Cancelled if message.starts_with("h2 protocol error") => Code::Internal,
        Code::Unknown if broken() => Code::Unavailable,
        Code::OutOfRange | Code::ResourceExhausted | Code::Internal if is_about_size(message) => {
            Code::OutOfRange
        }
        // Without a size in it, the code is the provider's own and says nothing about our message.
        Code::OutOfRange => Code::Unknown,
        Code::Unimplemented => return (code, Some(ErrorReason::MethodNotSupported)),
        other => other,
    };
    (code, None)
}

/// Whether the provider ended the connection, as a process does that is asked to end: tonic then gives the code of the
/// GOAWAY's reason, which is INTERNAL for the graceful one.
fn connection_ended(status: &Status) -> bool {
    std::iter::successors(status.source(), |&error| error.source())
        .filter_map(|error| error.downcast_ref::<h2::Error>())
        .any(|error| error.is_io() || (error.is_go_away() && error.is_remote()))
}

/// Matches what tonic, Go, Java, Python and Node.js say about a message above their limit.
fn is_about_size(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["message length too large", "larger than max", "exceeds maximum size", "message too large"]
        .iter()
        .any(|words| message.contains(words))
}
