package fault

import (
	"errors"
	"regexp"
	"slices"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	// maxDetails bounds all details together, since they travel in trailers.
	maxDetails = 4 << 10
	// maxValue bounds each entry of the details; maxDetails bounds the total.
	maxValue = 256
)

var metadataKey = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// GRPCStatus returns the error as a status: the code of the reason, ErrorInfo always, RetryInfo, BadRequest and
// QuotaFailure if they have content. Drops what does not fit into 4 KiB: quotas first, then fields, then metadata.
func (e *Error) GRPCStatus() *status.Status {
	fields, quotas := slices.Clone(e.fields), slices.Clone(e.quotas)
	keys := make([]string, 0, len(e.metadata))
	for key := range e.metadata {
		if metadataKey.MatchString(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for {
		encoded := e.encode(fields, quotas, keys)
		switch {
		case proto.Size(encoded) < maxDetails:
			return status.FromProto(encoded)
		case len(quotas) > 0:
			quotas = quotas[:len(quotas)-1]
		case len(fields) > 0:
			fields = fields[:len(fields)-1]
		case len(keys) > 0:
			keys = keys[:len(keys)-1]
		default:
			return status.FromProto(encoded)
		}
	}
}

func (e *Error) encode(fields []Field, quotas []Quota, keys []string) *spb.Status {
	info := &errdetails.ErrorInfo{Reason: WireName(e.reason), Domain: Domain, Metadata: map[string]string{}}
	for _, key := range keys {
		info.Metadata[key] = cut(e.metadata[key], maxValue)
	}
	details := []proto.Message{info}
	if e.retryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.retryAfter)})
	}
	if len(fields) > 0 {
		bad := &errdetails.BadRequest{}
		for _, field := range fields {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: cut(field.Path, maxValue), Description: cut(field.Why, maxValue),
			})
		}
		details = append(details, bad)
	}
	if len(quotas) > 0 {
		failure := &errdetails.QuotaFailure{}
		for _, quota := range quotas {
			failure.Violations = append(failure.Violations, &errdetails.QuotaFailure_Violation{
				Subject: cut(quota.Subject, maxValue), Description: cut(quota.What, maxValue),
			})
		}
		details = append(details, failure)
	}
	out := &spb.Status{Code: int32(e.Code()), Message: e.message}
	for _, detail := range details {
		// Known message types with UTF-8 texts always encode.
		if packed, err := anypb.New(detail); err == nil {
			out.Details = append(out.Details, packed)
		}
	}
	return out
}

// FromStatus parses a status, for tests and callers; false if it has no ErrorInfo of the contract and so proves
// nothing. An unknown reason is read as UNSPECIFIED.
func FromStatus(err error) (*Error, bool) {
	var fault *Error
	if errors.As(err, &fault) {
		return fault, true
	}
	found, isStatus := status.FromError(err)
	if !isStatus {
		return nil, false
	}
	out, ours := &Error{message: found.Message()}, false
	for _, detail := range found.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == Domain {
				ours = true
				out.reason = pb.ErrorReason(pb.ErrorReason_value[reasonPrefix+detail.GetReason()])
				out.metadata = detail.GetMetadata()
			}
		case *errdetails.RetryInfo:
			out.retryAfter = detail.GetRetryDelay().AsDuration()
		case *errdetails.BadRequest:
			for _, one := range detail.GetFieldViolations() {
				out.fields = append(out.fields, Field{one.GetField(), one.GetDescription()})
			}
		case *errdetails.QuotaFailure:
			for _, one := range detail.GetViolations() {
				out.quotas = append(out.quotas, Quota{one.GetSubject(), one.GetDescription()})
			}
		}
	}
	return out, ours
}
