"""Which gRPC code belongs to which reason: the table in `errors.proto`."""

from typing import Final

import grpc

from cloudprovider_sdk import proto as pb

_REASONS: Final = {
    grpc.StatusCode.UNKNOWN: (pb.ERROR_REASON_UNSPECIFIED,),
    grpc.StatusCode.INTERNAL: (pb.ERROR_REASON_INTERNAL_ERROR,),
    grpc.StatusCode.UNIMPLEMENTED: (pb.ERROR_REASON_METHOD_NOT_SUPPORTED,),
    grpc.StatusCode.OUT_OF_RANGE: (pb.ERROR_REASON_RESUME_TOKEN_EXPIRED,),
    grpc.StatusCode.ALREADY_EXISTS: (pb.ERROR_REASON_OWNED_BY_OTHER_CLUSTER,),
    grpc.StatusCode.PERMISSION_DENIED: (pb.ERROR_REASON_CLOUD_PERMISSION_DENIED,),
    grpc.StatusCode.NOT_FOUND: (
        pb.ERROR_REASON_INSTANCE_NOT_FOUND,
        pb.ERROR_REASON_VOLUME_NOT_FOUND,
        pb.ERROR_REASON_CLUSTER_NOT_FOUND,
    ),
    grpc.StatusCode.UNAUTHENTICATED: (
        pb.ERROR_REASON_PEER_NOT_TRUSTED,
        pb.ERROR_REASON_CLOUD_CREDENTIALS_INVALID,
        pb.ERROR_REASON_CLOUD_CREDENTIALS_EXPIRED,
    ),
    grpc.StatusCode.INVALID_ARGUMENT: (
        pb.ERROR_REASON_UNSUPPORTED_FEATURE,
        pb.ERROR_REASON_INVALID_CONFIGURATION,
        pb.ERROR_REASON_INVALID_ARGUMENT_SHAPE,
        pb.ERROR_REASON_BATCH_TOO_LARGE,
        pb.ERROR_REASON_INVALID_TOKEN,
        pb.ERROR_REASON_INVALID_SSH_KEY,
    ),
    grpc.StatusCode.ABORTED: (
        pb.ERROR_REASON_PAGE_TOKEN_EXPIRED,
        pb.ERROR_REASON_CONCURRENT_OPERATION,
        pb.ERROR_REASON_STALE_REVISION,
        pb.ERROR_REASON_ROUTE_CHANGED,
    ),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (
        pb.ERROR_REASON_RATE_LIMITED,
        pb.ERROR_REASON_QUOTA_EXCEEDED,
        pb.ERROR_REASON_CAPACITY_UNAVAILABLE,
        pb.ERROR_REASON_ROUTE_TABLE_FULL,
    ),
    grpc.StatusCode.FAILED_PRECONDITION: (
        pb.ERROR_REASON_INSTANCE_AMBIGUOUS,
        pb.ERROR_REASON_IMPLEMENTED_ELSEWHERE,
        pb.ERROR_REASON_ADOPTION_REFUSED,
        pb.ERROR_REASON_NEEDS_ENSURE,
        pb.ERROR_REASON_INVALID_PROVIDER_CONFIG,
        pb.ERROR_REASON_STALE_LEADER,
        pb.ERROR_REASON_UNKNOWN_BACKEND_SET,
    ),
    grpc.StatusCode.UNAVAILABLE: (
        pb.ERROR_REASON_METADATA_NOT_READY,
        pb.ERROR_REASON_LOCATION_UNREACHABLE,
        pb.ERROR_REASON_RETRY_LATER,
        pb.ERROR_REASON_PROVIDER_OVERLOADED,
        pb.ERROR_REASON_CLOUD_API_UNAVAILABLE,
        pb.ERROR_REASON_SHUTTING_DOWN,
    ),
}
_CODES: Final = {reason: code for code, reasons in _REASONS.items() for reason in reasons}


def code_of(reason: pb.ErrorReason.ValueType) -> grpc.StatusCode:
    """Answer the gRPC code of a reason when a whole call fails with it.

    Reasons that the contract knows only beside an item get the code nearest in meaning.
    """
    return _CODES[reason]
