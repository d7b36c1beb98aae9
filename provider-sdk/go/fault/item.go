package fault

import (
	"errors"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Item returns any error as an item error. An error without an Error in its chain becomes INTERNAL_ERROR, without its text.
func Item(err error) *pb.ItemError {
	var fault *Error
	if !errors.As(err, &fault) {
		fault = Internal(err)
	}
	item := &pb.ItemError{Reason: fault.reason, Message: fault.message}
	if item.Reason == pb.ErrorReason_ERROR_REASON_UNSPECIFIED {
		item.Reason = pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR
	}
	if fault.retryAfter > 0 {
		item.RetryAfter = durationpb.New(fault.retryAfter)
	}
	return item
}
