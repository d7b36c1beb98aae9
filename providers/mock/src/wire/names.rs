//! Names of the contract and of gRPC, read as people write them.

use cloudprovider_sdk::proto::{ErrorReason, InstanceState};
use tonic::Code;

const CODES: [(Code, &str); 16] = [
    (Code::Cancelled, "CANCELLED"),
    (Code::Unknown, "UNKNOWN"),
    (Code::InvalidArgument, "INVALID_ARGUMENT"),
    (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
    (Code::NotFound, "NOT_FOUND"),
    (Code::AlreadyExists, "ALREADY_EXISTS"),
    (Code::PermissionDenied, "PERMISSION_DENIED"),
    (Code::ResourceExhausted, "RESOURCE_EXHAUSTED"),
    (Code::FailedPrecondition, "FAILED_PRECONDITION"),
    (Code::Aborted, "ABORTED"),
    (Code::OutOfRange, "OUT_OF_RANGE"),
    (Code::Unimplemented, "UNIMPLEMENTED"),
    (Code::Internal, "INTERNAL"),
    (Code::Unavailable, "UNAVAILABLE"),
    (Code::DataLoss, "DATA_LOSS"),
    (Code::Unauthenticated, "UNAUTHENTICATED"),
];

/// The name of a code.
pub(crate) fn code_name(code: Code) -> &'static str {
    CODES.iter().find(|(known, _)| *known == code).map_or("OK", |(_, name)| name)
}

/// The code of this name, other than OK.
pub(crate) fn code_named(name: &str) -> Option<Code> {
    CODES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(code, _)| *code)
}

/// The reason of this name.
pub(crate) fn reason_named(name: &str) -> Option<ErrorReason> {
    ErrorReason::from_wire_name(&name.to_ascii_uppercase())
}

/// The number of a state of machines, by name or as it stands.
pub(crate) fn instance_state_named(name: &str) -> Option<i32> {
    let by_name = || InstanceState::from_str_name(&format!("INSTANCE_STATE_{}", name.to_ascii_uppercase()));
    name.parse().ok().or_else(|| by_name().map(i32::from))
}
