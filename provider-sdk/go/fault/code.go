package fault

import (
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc/codes"
)

// CodeOf answers the gRPC code of a reason when a whole call fails with it: the table in errors.proto. Reasons that the
// contract knows only beside an item get the code nearest in meaning.
func CodeOf(reason pb.ErrorReason) codes.Code {
	switch reason {
	case pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR:
		return codes.Internal
	case pb.ErrorReason_ERROR_REASON_METHOD_NOT_SUPPORTED:
		return codes.Unimplemented
	case pb.ErrorReason_ERROR_REASON_RESUME_TOKEN_EXPIRED:
		return codes.OutOfRange
	case pb.ErrorReason_ERROR_REASON_OWNED_BY_OTHER_CLUSTER:
		return codes.AlreadyExists
	case pb.ErrorReason_ERROR_REASON_CLOUD_PERMISSION_DENIED:
		return codes.PermissionDenied
	case pb.ErrorReason_ERROR_REASON_INSTANCE_NOT_FOUND,
		pb.ErrorReason_ERROR_REASON_VOLUME_NOT_FOUND,
		pb.ErrorReason_ERROR_REASON_CLUSTER_NOT_FOUND:
		return codes.NotFound
	case pb.ErrorReason_ERROR_REASON_PEER_NOT_TRUSTED,
		pb.ErrorReason_ERROR_REASON_CLOUD_CREDENTIALS_INVALID,
		pb.ErrorReason_ERROR_REASON_CLOUD_CREDENTIALS_EXPIRED:
		return codes.Unauthenticated
	case pb.ErrorReason_ERROR_REASON_UNSUPPORTED_FEATURE,
		pb.ErrorReason_ERROR_REASON_INVALID_CONFIGURATION,
		pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT_SHAPE,
		pb.ErrorReason_ERROR_REASON_BATCH_TOO_LARGE,
		pb.ErrorReason_ERROR_REASON_INVALID_TOKEN,
		pb.ErrorReason_ERROR_REASON_INVALID_SSH_KEY:
		return codes.InvalidArgument
	case pb.ErrorReason_ERROR_REASON_PAGE_TOKEN_EXPIRED,
		pb.ErrorReason_ERROR_REASON_CONCURRENT_OPERATION,
		pb.ErrorReason_ERROR_REASON_STALE_REVISION,
		pb.ErrorReason_ERROR_REASON_ROUTE_CHANGED:
		return codes.Aborted
	case pb.ErrorReason_ERROR_REASON_RATE_LIMITED,
		pb.ErrorReason_ERROR_REASON_QUOTA_EXCEEDED,
		pb.ErrorReason_ERROR_REASON_CAPACITY_UNAVAILABLE,
		pb.ErrorReason_ERROR_REASON_ROUTE_TABLE_FULL:
		return codes.ResourceExhausted
	case pb.ErrorReason_ERROR_REASON_INSTANCE_AMBIGUOUS,
		pb.ErrorReason_ERROR_REASON_IMPLEMENTED_ELSEWHERE,
		pb.ErrorReason_ERROR_REASON_ADOPTION_REFUSED,
		pb.ErrorReason_ERROR_REASON_NEEDS_ENSURE,
		pb.ErrorReason_ERROR_REASON_INVALID_PROVIDER_CONFIG,
		pb.ErrorReason_ERROR_REASON_STALE_LEADER,
		pb.ErrorReason_ERROR_REASON_UNKNOWN_BACKEND_SET:
		return codes.FailedPrecondition
	case pb.ErrorReason_ERROR_REASON_METADATA_NOT_READY,
		pb.ErrorReason_ERROR_REASON_LOCATION_UNREACHABLE,
		pb.ErrorReason_ERROR_REASON_RETRY_LATER,
		pb.ErrorReason_ERROR_REASON_PROVIDER_OVERLOADED,
		pb.ErrorReason_ERROR_REASON_CLOUD_API_UNAVAILABLE,
		pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN:
		return codes.Unavailable
	default:
		return codes.Unknown
	}
}
