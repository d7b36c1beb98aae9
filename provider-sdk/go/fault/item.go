package fault

import (
	"errors"
	"runtime"
	"sync"
	"weak"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// causes are those of the item errors that still exist: the message has no field for what must not leave the process.
var causes sync.Map

// Item returns any error as an item error. An error without an Error in its chain becomes INTERNAL_ERROR, without its text. The cause
// is logged when a method returns the item.
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
	if fault.cause != nil {
		key := weak.Make(item)
		causes.Store(key, fault.cause)
		runtime.AddCleanup(item, func(key weak.Pointer[pb.ItemError]) { causes.Delete(key) }, key)
	}
	return item
}

// CauseOf returns the cause of an item error that Item has made in this process, for its log; nil if there is none.
func CauseOf(item *pb.ItemError) error {
	cause, _ := causes.Load(weak.Make(item))
	err, _ := cause.(error)
	return err
}
