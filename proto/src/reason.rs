//! The text of an error reason on the wire, in both directions, and what goes with it: `traits.rs` is made from the
//! options of the enum. And the names of gRPC codes.

use tonic::Code;

use crate::v1alpha1::{ErrorReason, RetryClass};

include!(concat!(env!("OUT_DIR"), "/traits.rs"));

const PREFIX: &str = "ERROR_REASON_";

impl ErrorReason {
    /// The reason as it stands in `google.rpc.ErrorInfo.reason`: the value's name without its prefix.
    #[must_use]
    pub fn wire_name(self) -> &'static str {
        self.as_str_name().strip_prefix(PREFIX).unwrap_or("UNSPECIFIED")
    }

    /// The gRPC code of a call that ends for this reason.
    #[must_use]
    pub fn code(self) -> Code {
        self.codes().first().copied().unwrap_or(Code::Unknown)
    }

    /// The reason with this text on the wire, if this version of the contract knows it.
    #[must_use]
    pub fn from_wire_name(name: &str) -> Option<Self> {
        Self::from_str_name(&format!("{PREFIX}{name}"))
    }
}

/// The name of a gRPC code in logs and metrics: its canonical one.
#[must_use]
pub fn code_name(code: Code) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_survives_the_wire() {
        let mut known = 0;
        for number in 0..1000 {
            if let Ok(reason) = ErrorReason::try_from(number) {
                assert_eq!(ErrorReason::from_wire_name(reason.wire_name()), Some(reason));
                assert!(reason.wire_name().len() <= 63, "{reason:?} is too long for ErrorInfo");
                known += 1;
            }
        }
        assert!(known > 30, "only {known} reasons seen");
    }

    #[test]
    fn what_goes_with_a_reason_is_read_from_its_options() {
        assert_eq!(ErrorReason::Unspecified.codes(), [Code::Unknown, Code::Internal]);
        assert_eq!(ErrorReason::StaleLeader.code(), Code::FailedPrecondition);
        assert_eq!(ErrorReason::InstanceAmbiguous.retry(), RetryClass::Slow);
        assert_eq!(ErrorReason::AdoptionRefused.retry(), RetryClass::Wait);
        assert!(ErrorReason::CloudApiUnavailable.freezes() && !ErrorReason::RateLimited.freezes());
    }

    #[test]
    fn a_reason_of_a_newer_contract_is_not_known() {
        assert_eq!(ErrorReason::from_wire_name("FROM_THE_FUTURE"), None);
    }
}
