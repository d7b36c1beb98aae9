// Package fault provides the error of a provider: a reason of the contract, with its details.
//
// Each condition has a constructor. An error becomes a gRPC status with ErrorInfo, within the contract's size limits, or
// the error of one item of a batch.
package fault

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"cloudprovider.ccm/sdk/scrub"
	"google.golang.org/grpc/codes"
)

const (
	// Domain is google.rpc.ErrorInfo.domain of every error of the contract.
	Domain = "cloudprovider.ccm"

	maxMessage   = 1 << 10
	reasonPrefix = "ERROR_REASON_"
)

// Error is an error with one of the contract's reasons.
//
// A cause may be attached: it is logged in this process and never leaves it. The zero value is not useful; use New or
// one of the constructors that are named after conditions.
type Error struct {
	reason     pb.ErrorReason
	message    string
	retryAfter time.Duration
	metadata   map[string]string
	fields     []Field
	quotas     []Quota
	cause      error
}

// Field is an invalid field: a Kubernetes field path or a path in the request, and the reason.
type Field struct{ Path, Why string }

// Quota is an exhausted quota: its subject (an account, a region), and a description.
type Quota struct{ Subject, What string }

// Option adds a detail to an Error.
type Option func(*Error)

// New returns an error with any reason. Prefer the constructors that are named after conditions: they require every
// detail that belongs to the reason.
//
// The message is for humans: lowercase, stable from call to call, at most 1 KiB (the rest is cut off). Anything in it
// that looks like a secret is redacted.
func New(reason pb.ErrorReason, message string, options ...Option) *Error {
	fault := &Error{reason: reason, message: cut(clean(message), maxMessage)}
	for _, option := range options {
		option(fault)
	}
	return fault
}

// WithRetryAfter sets when the host retries.
func WithRetryAfter(after time.Duration) Option {
	return func(e *Error) { e.retryAfter = after }
}

// WithMetadata adds text that varies from call to call, such as the cloud's request id. Anything that looks like a secret
// is redacted.
func WithMetadata(key, value string) Option {
	return func(e *Error) {
		if e.metadata == nil {
			e.metadata = map[string]string{}
		}
		if scrub.NamesSecret(key) {
			value = scrub.Redacted
		}
		e.metadata[key] = clean(value)
	}
}

// WithField adds an invalid field and the reason.
func WithField(path, why string) Option {
	return func(e *Error) { e.fields = append(e.fields, Field{clean(path), clean(why)}) }
}

// WithQuota adds an exhausted quota.
func WithQuota(subject, what string) Option {
	return func(e *Error) { e.quotas = append(e.quotas, Quota{clean(subject), clean(what)}) }
}

// WithCause keeps the cause for the log of this process.
func WithCause(cause error) Option {
	return func(e *Error) { e.cause = cause }
}

// With returns a copy with more details.
func (e *Error) With(options ...Option) *Error {
	more := *e
	more.metadata, more.fields, more.quotas = maps.Clone(e.metadata), slices.Clone(e.fields), slices.Clone(e.quotas)
	for _, option := range options {
		option(&more)
	}
	return &more
}

// Reason returns the reason.
func (e *Error) Reason() pb.ErrorReason { return e.reason }

// Code returns the reason's gRPC code.
func (e *Error) Code() codes.Code { return CodeOf(e.reason) }

// Message returns the message for humans.
func (e *Error) Message() string { return e.message }

// RetryAfter returns when the host retries, or zero if not set.
func (e *Error) RetryAfter() time.Duration { return e.retryAfter }

// Metadata returns the value of a key, empty if not set.
func (e *Error) Metadata(key string) string { return e.metadata[key] }

// Fields returns the invalid fields.
func (e *Error) Fields() []Field { return e.fields }

// Quotas returns the exhausted quotas.
func (e *Error) Quotas() []Quota { return e.quotas }

// Error returns message and reason, without the cause.
func (e *Error) Error() string { return fmt.Sprintf("%s (%s)", e.message, WireName(e.reason)) }

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.cause }

// ReasonOf returns the reason of an error of this package anywhere in a chain, UNSPECIFIED if there is none.
func ReasonOf(err error) pb.ErrorReason {
	var fault *Error
	if errors.As(err, &fault) {
		return fault.reason
	}
	return pb.ErrorReason_ERROR_REASON_UNSPECIFIED
}

// WireName returns the reason as sent in ErrorInfo.reason: the value's name without its prefix.
func WireName(reason pb.ErrorReason) string {
	name, known := pb.ErrorReason_name[int32(reason)]
	if !known {
		return "UNSPECIFIED"
	}
	return strings.TrimPrefix(name, reasonPrefix)
}

// clean prepares a text for leaving the process: without secrets, and in valid UTF-8, which encoding the details
// requires.
func clean(text string) string {
	return scrub.Text(strings.ToValidUTF8(text, "\uFFFD"))
}

// cut returns the longest prefix of a text that has at most max bytes and ends between characters.
func cut(text string, max int) string {
	if len(text) <= max {
		return text
	}
	for max > 0 && !utf8.RuneStart(text[max]) {
		max--
	}
	return text[:max]
}
