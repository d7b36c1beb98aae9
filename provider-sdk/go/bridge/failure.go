package bridge

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
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
		if known := b.errors(&stable{text, err}); known != nil && (refuses(known, err) || known.Reason() == b.without(err, text)) {
			return known.With(told...)
		}
	}
	return fault.New(pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, "the cloud provider failed: "+text, told...)
}

// refuses reports whether this concerns nobody but the Service itself, whoever says it.
func refuses(known *fault.Error, err error) bool {
	about := new(about)
	if known.Reason() != pb.ErrorReason_ERROR_REASON_UNSUPPORTED_FEATURE || !errors.As(err, &about) {
		return false
	}
	_, is := about.object.(*v1.Service)
	return is
}

// about is the error of a call about objects that a tenant, or a kubelet, writes.
type about struct {
	error
	object any
	nodes  []*v1.Node
}

func (a *about) Unwrap() error { return a.error }

// of says which object the call was about, if it failed, and the nodes behind a balancer.
func of(err error, object any, nodes ...*v1.Node) error {
	if err == nil {
		return nil
	}
	return &about{err, object, nodes}
}

// wordPattern finds words, but no numbers: parts of an address, or of the name of one node of many, are soon an HTTP status, which
// means nothing without the words around it.
var wordPattern = regexp.MustCompile(`\w*[A-Za-z_]\w*`)

// escapes are what quoting makes of a line's end and of letters that are none: the letter after the backslash is in no word.
var escapes = regexp.MustCompile(`\\(?:[abfnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})`)

// noWord reports whether a letter is in no word: nodes are thousands, for which a pattern takes too long.
func noWord(letter rune) bool {
	return letter != '_' && (letter < '0' || letter > '9') && (letter < 'A' || letter > 'Z') && (letter < 'a' || letter > 'z')
}

// without returns what the error means without the words that stand on its objects: providers and clouds quote any field of them, and
// an annotation or an address that reads "Throttling: " must not pause the calls for everybody else.
func (b *bridge) without(err error, text string) pb.ErrorReason {
	if about := new(about); errors.As(err, &about) {
		theirs := map[string]bool{}
		read := func(text string) {
			for word := range strings.FieldsFuncSeq(text, noWord) {
				theirs[strings.ToLower(word)] = true
			}
		}
		eachText(reflect.ValueOf(about.object), read)
		for _, node := range about.nodes {
			// Their annotations and statuses, which nobody quotes of nodes behind a balancer, have everyday words.
			eachText(reflect.ValueOf([]any{node.Name, node.Labels, node.Spec.ProviderID, node.Status.Addresses}), read)
		}
		text = wordPattern.ReplaceAllStringFunc(escapes.ReplaceAllString(text, " "), func(word string) string {
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

// unquoted are what no provider quotes, and what has everyday words: "status", "error".
var unquoted = []reflect.Type{reflect.TypeFor[v1.NodeCondition](), reflect.TypeFor[v1.ContainerImage](), reflect.TypeFor[metav1.ManagedFieldsEntry](), reflect.TypeFor[metav1.Condition]()}

// eachText reads all texts of an object.
func eachText(value reflect.Value, read func(string)) {
	if value.IsValid() && slices.Contains(unquoted, value.Type()) {
		return
	}
	switch value.Kind() {
	case reflect.String:
		read(value.String())
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			eachText(value.Elem(), read)
		}
	case reflect.Slice, reflect.Array:
		for at := range value.Len() {
			eachText(value.Index(at), read)
		}
	case reflect.Map:
		for each := value.MapRange(); each.Next(); {
			eachText(each.Key(), read)
			eachText(each.Value(), read)
		}
	case reflect.Struct:
		for at := range value.NumField() {
			eachText(value.Field(at), read)
		}
	}
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
