package bridge

import (
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/types/known/durationpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
)

// mapped translates an error of a provider into one of the contract.
//
// Other errors keep their text, because users of such providers expect to read it in Events. One that wraps a deadline is
// about its object as well: whether the cloud answers is what many objects show (health).
func (b *bridge) mapped(err error, what string) error {
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
	}
	text, id := withoutRequestID(err.Error())
	told := []fault.Option{fault.WithCause(err)}
	if id != "" {
		told = append(told, fault.WithMetadata("cloud_request_id", id))
	}
	if after, retry := retryAfter(err); retry {
		return fault.RetryLater(after, text, told...)
	}
	if b.errors != nil {
		if known := b.errors(&stable{text, err}); known != nil && known.Reason() == b.without(err, text) {
			return known.With(told...)
		}
	}
	return fault.New(pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, "the cloud provider failed: "+text, told...)
}

// about is the error of a call about an object that a tenant, or a kubelet, writes.
type about struct {
	error
	object metav1.Object
}

func (a *about) Unwrap() error { return a.error }

// of says which object the call was about, if it failed.
func of(object metav1.Object, err error) error {
	if err == nil {
		return nil
	}
	return &about{err, object}
}

var wordPattern = regexp.MustCompile(`\w+`)

// without returns what the error means without the words that stand on its object: providers and clouds quote names,
// labels and annotations, and one that reads "Throttling: " must not pause the calls for everybody else.
func (b *bridge) without(err error, text string) pb.ErrorReason {
	if about := new(about); errors.As(err, &about) {
		theirs := map[string]bool{}
		read := func(texts ...string) {
			for _, text := range texts {
				for _, word := range wordPattern.FindAllString(text, -1) {
					theirs[strings.ToLower(word)] = true
				}
			}
		}
		read(about.object.GetName(), about.object.GetNamespace())
		for _, all := range []map[string]string{about.object.GetLabels(), about.object.GetAnnotations()} {
			for key, value := range all {
				read(key, value)
			}
		}
		text = wordPattern.ReplaceAllStringFunc(text, func(word string) string {
			if theirs[strings.ToLower(word)] {
				return "x"
			}
			return word
		})
	}
	if known := b.errors(&stable{text, err}); known != nil {
		return known.Reason()
	}
	return pb.ErrorReason_ERROR_REASON_UNSPECIFIED
}

// stable is an error whose text does not change from call to call.
type stable struct {
	text string
	error
}

func (s *stable) Error() string { return s.text }
func (s *stable) Unwrap() error { return s.error }

// mappedForService is mapped for a call about one Service. What a provider does not implement for one Service it may
// implement for others, so the call gets this reason instead: after METHOD_NOT_SUPPORTED the host calls it for no Service.
func (b *bridge) mappedForService(err error, uid string, instead pb.ErrorReason) error {
	out := b.mapped(err, uid)
	if fault.ReasonOf(out) == pb.ErrorReason_ERROR_REASON_METHOD_NOT_SUPPORTED {
		text, _ := withoutRequestID(err.Error())
		return fault.New(instead, "the cloud provider does not implement this for the Service: "+text, fault.WithCause(err))
	}
	return out
}

// latestRetry caps the delay that a provider asks for: nobody should wait a day for a load balancer that is ready in a
// minute.
const latestRetry = time.Minute

// retryAfter finds a RetryError anywhere in a chain.
func retryAfter(err error) (time.Duration, bool) {
	var retry *api.RetryError
	if !errors.As(err, &retry) {
		return 0, false
	}
	return min(max(retry.RetryAfter(), time.Second), latestRetry), true
}

// inProgress recognises work that merely takes long: the provider returned a RetryError, or has not returned yet. It
// returns nil for anything else.
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

// guarded calls the provider and turns a panic into an error, whose text is only logged.
func guarded(call func() error) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fault.Internal(fmt.Errorf("the cloud provider panicked: %v\n%s", panicked, debug.Stack()))
		}
	}()
	return call()
}
