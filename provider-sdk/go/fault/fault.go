// Package fault holds the one error of a provider: a reason of the contract, and what goes with it.
//
// In: a condition, named by a constructor. Out: a gRPC status with ErrorInfo within the contract's sizes, or the error of
// one item of a batch. Which code belongs to which reason is decided here, in one table.
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

// Error says what went wrong, as the contract names it.
//
// A cause may ride along: it is logged in this process and never leaves it. The zero value is not useful; use New or one
// of the constructors that are named by condition.
type Error struct {
	reason     pb.ErrorReason
	message    string
	retryAfter time.Duration
	metadata   map[string]string
	fields     []Field
	quotas     []Quota
	cause      error
}

// Field is a field that is wrong: a Kubernetes field path or a path in the request, and why.
type Field struct{ Path, Why string }

// Quota is a quota that is used up: its subject (an account, a region), and what it says.
type Quota struct{ Subject, What string }

// Option adds to an Error what belongs to it.
type Option func(*Error)

// New makes an error with any reason. Prefer the constructors that are named by condition: they ask for all that belongs
// to it.
//
// The message is for people: lowercase, the same from call to call, at most 1 KiB (longer ones are cut). What looks like a
// secret in it is redacted.
func New(reason pb.ErrorReason, message string, options ...Option) *Error {
	fault := &Error{reason: reason, message: cut(clean(message), maxMessage)}
	for _, option := range options {
		option(fault)
	}
	return fault
}

// WithRetryAfter says when to come back.
func WithRetryAfter(after time.Duration) Option {
	return func(e *Error) { e.retryAfter = after }
}

// WithMetadata adds text that varies from call to call, such as the cloud's request id. What looks like a secret is
// redacted.
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

// WithField names a field that is wrong and why.
func WithField(path, why string) Option {
	return func(e *Error) { e.fields = append(e.fields, Field{clean(path), clean(why)}) }
}

// WithQuota names a quota that is used up.
func WithQuota(subject, what string) Option {
	return func(e *Error) { e.quotas = append(e.quotas, Quota{clean(subject), clean(what)}) }
}

// WithCause keeps the cause for the log of this process.
func WithCause(cause error) Option {
	return func(e *Error) { e.cause = cause }
}

// With answers a copy with more said.
func (e *Error) With(options ...Option) *Error {
	more := *e
	more.metadata, more.fields, more.quotas = maps.Clone(e.metadata), slices.Clone(e.fields), slices.Clone(e.quotas)
	for _, option := range options {
		option(&more)
	}
	return &more
}

// Reason answers the reason.
func (e *Error) Reason() pb.ErrorReason { return e.reason }

// Code answers the gRPC code that belongs to the reason.
func (e *Error) Code() codes.Code { return CodeOf(e.reason) }

// Message answers the message for people.
func (e *Error) Message() string { return e.message }

// RetryAfter answers when to come back, or zero when that was not said.
func (e *Error) RetryAfter() time.Duration { return e.retryAfter }

// Metadata answers one text that varies from call to call, empty when it is not there.
func (e *Error) Metadata(key string) string { return e.metadata[key] }

// Fields answers the fields that are wrong.
func (e *Error) Fields() []Field { return e.fields }

// Quotas answers the quotas that are used up.
func (e *Error) Quotas() []Quota { return e.quotas }

// Error says what and why, without the cause.
func (e *Error) Error() string { return fmt.Sprintf("%s (%s)", e.message, WireName(e.reason)) }

// Unwrap answers the cause, or nil.
func (e *Error) Unwrap() error { return e.cause }

// ReasonOf answers the reason of an error of this package anywhere in a chain, UNSPECIFIED when there is none.
func ReasonOf(err error) pb.ErrorReason {
	var fault *Error
	if errors.As(err, &fault) {
		return fault.reason
	}
	return pb.ErrorReason_ERROR_REASON_UNSPECIFIED
}

// WireName answers the reason as it stands in ErrorInfo.reason: the value's name without its prefix.
func WireName(reason pb.ErrorReason) string {
	name, known := pb.ErrorReason_name[int32(reason)]
	if !known {
		return "UNSPECIFIED"
	}
	return strings.TrimPrefix(name, reasonPrefix)
}

// clean answers a text that may leave the process: without secrets, and in UTF-8, or no detail could be encoded.
func clean(text string) string {
	return scrub.Text(strings.ToValidUTF8(text, "\uFFFD"))
}

// cut answers the longest start of a text that has at most max bytes and ends between characters.
func cut(text string, max int) string {
	if len(text) <= max {
		return text
	}
	for max > 0 && !utf8.RuneStart(text[max]) {
		max--
	}
	return text[:max]
}
