package fault

import (
	"fmt"
	"strconv"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// MethodNotSupported says that the RPC is not served.
func MethodNotSupported(method string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_METHOD_NOT_SUPPORTED, method+" is not served")
}

// UnsupportedFeature says that the RPC is served, but not what is asked of it; field is a Kubernetes field path.
func UnsupportedFeature(field, why string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_UNSUPPORTED_FEATURE, field+": "+why, WithField(field, why))
}

// ImplementedElsewhere says that another controller looks after this Service. Never legal as the answer of a delete.
func ImplementedElsewhere() *Error {
	return New(pb.ErrorReason_ERROR_REASON_IMPLEMENTED_ELSEWHERE, "another controller looks after this Service")
}

// InvalidConfiguration says that the user's Service or annotations make no sense; field is a Kubernetes field path.
func InvalidConfiguration(field, why string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_INVALID_CONFIGURATION, field+": "+why, WithField(field, why))
}

// InvalidArgumentShape says that the request breaks the contract; field is a path in the request.
func InvalidArgumentShape(field, why string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT_SHAPE, field+" "+why, WithField(field, why))
}

// BatchTooLarge says that there are more items than advertised.
func BatchTooLarge(items int, max uint32) *Error {
	return New(pb.ErrorReason_ERROR_REASON_BATCH_TOO_LARGE, fmt.Sprintf("more than %d items", max),
		WithMetadata("max", strconv.FormatUint(uint64(max), 10)), WithMetadata("items", strconv.Itoa(items)))
}

// PageTokenExpired says that the page token was issued, but is too old.
func PageTokenExpired() *Error {
	return New(pb.ErrorReason_ERROR_REASON_PAGE_TOKEN_EXPIRED, "the page token is too old")
}

// InvalidToken says that the token was never issued by this process epoch.
func InvalidToken() *Error {
	return New(pb.ErrorReason_ERROR_REASON_INVALID_TOKEN, "the token was not issued by this process")
}

// ResumeTokenExpired says that the resume token is too old.
func ResumeTokenExpired() *Error {
	return New(pb.ErrorReason_ERROR_REASON_RESUME_TOKEN_EXPIRED, "the resume token is too old")
}
