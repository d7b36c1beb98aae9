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
	if after, retry := retryAfter(err); retry {
		return fault.RetryLater(after, err.Error())
	}
	return fault.New(pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, fmt.Sprintf("the cloud provider failed: %v", err),
		fault.WithCause(err))
}

// retryAfter finds a RetryError anywhere in a chain.
func retryAfter(err error) (time.Duration, bool) {
	var retry *api.RetryError
	if !errors.As(err, &retry) {
		return 0, false
	}
	return max(retry.RetryAfter(), time.Second), true
}

// inProgress answers work that merely takes long, which a provider says by a RetryError; nil when it is something else.
func inProgress(err error) *pb.InProgress {
	after, retry := retryAfter(err)
	if !retry {
		return nil
	}
	text := fault.RetryLater(after, err.Error()).Message()
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
