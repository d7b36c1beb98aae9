package bridge

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/types/known/durationpb"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
)

// mapped answers what the contract has for an error of a provider.
//
// Errors without a meaning of their own keep their text, since that is what users of such providers read in Events.
func mapped(err error, what string) error {
	var ours *fault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ours):
		return ours
	case errors.Is(err, cloudprovider.InstanceNotFound):
		return fault.InstanceNotFound(what)
	case errors.Is(err, cloudprovider.NotImplemented):
		return fault.MethodNotSupported(what)
	case errors.Is(err, cloudprovider.ImplementedElsewhere):
		return fault.ImplementedElsewhere()
	case errors.Is(err, cloudprovider.DiskNotFound):
		return fault.VolumeNotFound(what)
	case errors.Is(err, context.DeadlineExceeded):
		return fault.CloudAPIUnavailable(fault.WithCause(err))
	}
	text, id := withoutRequestID(err.Error())
	told := []fault.Option{fault.WithCause(err)}
	if id != "" {
		told = append(told, fault.WithMetadata("cloud_request_id", id))
	}
	if after, retry := retryAfter(err); retry {
		return fault.RetryLater(after, text, told...)
	}
	return fault.New(pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, "the cloud provider failed: "+text, told...)
}

// latestRetry caps what a provider asks for: nobody waits a day for a balancer that is there in a minute.
const latestRetry = time.Minute

// retryAfter finds a RetryError anywhere in a chain.
func retryAfter(err error) (time.Duration, bool) {
	var retry *api.RetryError
	if !errors.As(err, &retry) {
		return 0, false
	}
	return min(max(retry.RetryAfter(), time.Second), latestRetry), true
}

// inProgress answers work that merely takes long, which a provider says by a RetryError, or by not returning; nil when it is
// something else.
func inProgress(err error) *pb.InProgress {
	var unfinished *unfinished
	if errors.As(err, &unfinished) {
		return &pb.InProgress{
			RetryAfter: durationpb.New(unfinished.retryAfter), Reason: unfinished.reason, Message: unfinished.message,
		}
	}
	after, retry := retryAfter(err)
	if !retry {
		return nil
	}
	text, _ := withoutRequestID(err.Error())
	text = fault.RetryLater(after, text).Message() // Scrubbed and cut.
	return &pb.InProgress{RetryAfter: durationpb.New(after), Reason: "RETRY", Message: text}
}

// guarded runs a call of the provider; a panic becomes an error, which is logged and not told.
func guarded(call func() error) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fault.Internal(fmt.Errorf("the cloud provider panicked: %v\n%s", panicked, debug.Stack()))
		}
	}()
	return call()
}
