//! Errors of calls. [`crate::reconcile`] decides when to retry.
//!
//! In: a gRPC status or an item's error. Out: one type that every controller matches on. `status` normalises, in one
//! place, what libraries really return on a timeout, a kill or an oversized message.

use std::time::Duration;

pub use cloudprovider_proto::v1alpha1::ErrorReason;

/// A call, or one item of a call, that did not succeed. It proves nothing about existence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{method}: {message}")]
pub struct CloudError {
    /// Name of the RPC, for example `BatchGetInstances`.
    pub method: &'static str,
    /// The contract's reason; `None` if the status carried none: a transport error, a timeout, a foreign server.
    pub reason: Option<ErrorReason>,
    /// The canonical code after normalisation.
    pub code: tonic::Code,
    /// For people; without secrets.
    pub message: String,
    /// The delay that the provider asked for.
    pub retry_after: Option<Duration>,
    /// There was no connection, or it broke before the provider answered.
    pub is_unanswered: bool,
}

impl CloudError {
    /// The reason as used in metrics and Events; the code if there is no reason.
    #[must_use]
    pub fn label(&self) -> String {
        self.reason.map_or_else(|| code_name(self.code), ErrorReason::wire_name).to_owned()
    }

    /// Whether the message exceeded either end's limit: it must be split, or can never be sent.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.reason.is_none() && self.code == tonic::Code::OutOfRange
    }

    /// Whether this error suggests that the provider is being replaced, so that its next process will answer.
    #[must_use]
    pub fn is_of_replacement(&self) -> bool {
        self.is_unanswered || self.is(ErrorReason::ShuttingDown)
    }

    /// Whether the error has this reason.
    #[must_use]
    pub fn is(&self, reason: ErrorReason) -> bool {
        self.reason == Some(reason)
    }
}

/// The code as gRPC spells it.
pub(super) fn code_name(code: tonic::Code) -> &'static str {
    use tonic::Code;
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
