package fault

import (
	"fmt"
	"strconv"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// MethodNotSupported means that the provider does not serve the RPC.
func MethodNotSupported(method string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_METHOD_NOT_SUPPORTED, method+" is not served")
}

// UnsupportedFeature means that the provider serves the RPC, but not what the request asks for; field is a Kubernetes
// field path.
func UnsupportedFeature(field, why string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_UNSUPPORTED_FEATURE, field+": "+why, WithField(field, why))
}

// ImplementedElsewhere means that another controller serves this Service. Never legal in response to a delete.
func ImplementedElsewhere() *Error {
	return New(pb.ErrorReason_ERROR_REASON_IMPLEMENTED_ELSEWHERE, "another controller serves this Service")
}

// InvalidConfiguration means that the user's Service or its annotations are invalid; field is a Kubernetes field path.
func InvalidConfiguration(field, why string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_INVALID_CONFIGURATION, field+": "+why, WithField(field, why))
}

// InvalidArgumentShape means that the request violates the contract; field is a path in the request.
func InvalidArgumentShape(field, why string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT_SHAPE, field+" "+why, WithField(field, why))
}

// BatchTooLarge means that the request has more items than advertised.
func BatchTooLarge(items int, max uint32) *Error {
	return New(pb.ErrorReason_ERROR_REASON_BATCH_TOO_LARGE, fmt.Sprintf("more than %d items", max),
		WithMetadata("max", strconv.FormatUint(uint64(max), 10)), WithMetadata("items", strconv.Itoa(items)))
}

// InvalidToken means that the token was never issued in this process epoch.
func InvalidToken() *Error {
	return New(pb.ErrorReason_ERROR_REASON_INVALID_TOKEN, "the token was not issued by this process")
}

// ResumeTokenExpired means that the resume token has expired.
func ResumeTokenExpired() *Error {
	return New(pb.ErrorReason_ERROR_REASON_RESUME_TOKEN_EXPIRED, "the resume token has expired")
}
