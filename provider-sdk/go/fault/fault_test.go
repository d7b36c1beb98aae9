package fault

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// [R:error-info] Every reason has a code and survives encoding.
func TestEveryReasonSurvivesTheWire(t *testing.T) {
	for number := range pb.ErrorReason_name {
		reason := pb.ErrorReason(number)
		sent := New(reason, "it failed", WithRetryAfter(7*time.Second), WithMetadata("request", "r-1"))
		got, ours := FromStatus(sent.GRPCStatus().Err())
		if !ours || got.Reason() != reason || got.RetryAfter() != 7*time.Second || got.Metadata("request") != "r-1" {
			t.Errorf("%v became %+v", reason, got)
		}
		unknown := reason == pb.ErrorReason_ERROR_REASON_UNSPECIFIED
		if (CodeOf(reason) == codes.Unknown) != unknown || len(WireName(reason)) > 63 {
			t.Errorf("%v has code %v and name %s", reason, CodeOf(reason), WireName(reason))
		}
	}
}

func TestAReasonThatNamesNoCodeIsRefused(t *testing.T) {
	bare := pb.RetryClass(0).Descriptor().Values().Get(0)
	if code, err := codeFrom(bare); err == nil {
		t.Errorf("a value without options has code %v", code)
	}
}

func TestConstructorsSayWhatTheContractWantsSaid(t *testing.T) {
	second := time.Second
	for _, row := range []struct {
		fault *Error
		code  codes.Code
		check func(*Error) bool
	}{
		{BatchTooLarge(501, 500), codes.InvalidArgument, func(e *Error) bool { return e.Metadata("max") == "500" }},
		{InvalidConfiguration("spec.ports[0]", "is odd"), codes.InvalidArgument,
			func(e *Error) bool { return e.Fields()[0] == Field{"spec.ports[0]", "is odd"} }},
		{UnsupportedFeature("spec.ports[0].protocol", "no SCTP"), codes.InvalidArgument,
			func(e *Error) bool { return len(e.Fields()) == 1 }},
		{QuotaExceeded("account-1", "balancers"), codes.ResourceExhausted,
			func(e *Error) bool { return e.Quotas()[0] == Quota{"account-1", "balancers"} }},
		{RateLimited(second), codes.ResourceExhausted, func(e *Error) bool { return e.RetryAfter() == second }},
		{RetryLater(second, "later"), codes.Unavailable, func(e *Error) bool { return e.RetryAfter() == second }},
		{Overloaded(second), codes.Unavailable, func(e *Error) bool { return e.RetryAfter() == second }},
		{CloudPermissionDenied("lb:Create"), codes.PermissionDenied,
			func(e *Error) bool { return e.Metadata("action") == "lb:Create" }},
		{StaleLeader("lease"), codes.FailedPrecondition, func(*Error) bool { return true }},
	} {
		got, ours := FromStatus(row.fault.GRPCStatus().Err())
		if !ours || status.Code(row.fault.GRPCStatus().Err()) != row.code || !row.check(got) {
			t.Errorf("%v became %+v", row.fault, got)
		}
	}
}

// [R:error-size]
func TestDetailsStaySmall(t *testing.T) {
	options := []Option{WithMetadata("odd key", "x"), WithMetadata("first", strings.Repeat("a", 300))}
	for i := range 64 {
		options = append(options, WithField(fmt.Sprint(i), strings.Repeat("ü", 500)), WithQuota("q", strings.Repeat("w", 500)))
	}
	sent := New(pb.ErrorReason_ERROR_REASON_QUOTA_EXCEEDED, strings.Repeat("ü", 2000), options...)
	if size := proto.Size(sent.GRPCStatus().Proto()); size >= 4<<10 {
		t.Errorf("the status has %d bytes", size)
	}
	got, ours := FromStatus(sent.GRPCStatus().Err())
	if !ours || len(got.Metadata("first")) != 256 || got.Metadata("odd key") != "" || len(got.Message()) != 1024 {
		t.Errorf("became %+v", got)
	}
}

// [R:error-no-secret]
func TestSecretsDoNotTravel(t *testing.T) {
	const canary = "canary-hunter2"
	sent := New(pb.ErrorReason_ERROR_REASON_RETRY_LATER, "token="+canary, WithMetadata("api_token", canary),
		WithMetadata("url", "https://u:"+canary+"@x/"), WithField("f", "password: "+canary),
		WithQuota("q", "secret="+canary), WithCause(errors.New(canary)))
	if text := fmt.Sprint(sent.GRPCStatus().Proto(), sent, Item(sent)); strings.Contains(text, canary) {
		t.Error(text)
	}
	internal := Internal(errors.New("password " + canary))
	if text := fmt.Sprint(internal.GRPCStatus().Proto(), Item(errors.New(canary))); strings.Contains(text, canary) {
		t.Error(text)
	}
	if !strings.Contains(errors.Unwrap(internal).Error(), canary) {
		t.Error("the cause is lost for the log")
	}
}

func TestTextThatIsNoUTF8StillTravels(t *testing.T) {
	sent := InvalidConfiguration("spec\xff", "odd \xff")
	if got, ours := FromStatus(sent.GRPCStatus().Err()); !ours || len(got.Fields()) != 1 {
		t.Errorf("became %+v", got)
	}
}

func TestACopySaysMoreAndLeavesTheFirstAlone(t *testing.T) {
	before := RateLimited(time.Second).With(WithMetadata("a", "1"))
	after := before.With(WithMetadata("b", "2"), WithField("f", "w"))
	if before.Metadata("b") != "" || len(before.Fields()) != 0 || after.Metadata("a") != "1" || after.Metadata("b") != "2" ||
		after.RetryAfter() != time.Second || len(after.Fields()) != 1 {
		t.Errorf("%+v became %+v", before, after)
	}
}

func TestABareStatusProvesNothing(t *testing.T) {
	for _, err := range []error{nil, errors.New("x"), status.Error(codes.NotFound, "gone")} {
		if got, ours := FromStatus(err); ours {
			t.Errorf("%v became %v", err, got)
		}
	}
}

func TestWrappedErrorsKeepTheirMeaning(t *testing.T) {
	wrapped := fmt.Errorf("while reading: %w", RateLimited(3*time.Second))
	item := Item(wrapped)
	if ReasonOf(wrapped) != pb.ErrorReason_ERROR_REASON_RATE_LIMITED || item.GetReason() != ReasonOf(wrapped) ||
		item.GetRetryAfter().AsDuration() != 3*time.Second {
		t.Errorf("became %v", item)
	}
	if got := Item(errors.New("x")).GetReason(); got != pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR {
		t.Errorf("became %v", got)
	}
	if got := Item(New(pb.ErrorReason_ERROR_REASON_UNSPECIFIED, "x")).GetReason(); got != pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR {
		t.Errorf("became %v", got)
	}
}

// Items come and go by the thousand, and nobody says when one has been sent.
func TestTheCauseOfAnItemLastsAsLongAsTheItem(t *testing.T) {
	cause := errors.New("GET /servers")
	item := Item(fmt.Errorf("while reading: %w", CloudAPIUnavailable(WithCause(cause))))
	if CauseOf(item) != cause || CauseOf(Item(RateLimited(time.Second))) != nil || CauseOf(nil) != nil {
		t.Error(CauseOf(item))
	}
	runtime.KeepAlive(item)
	kept := func() (count int) {
		causes.Range(func(any, any) bool { count++; return true })
		return count
	}
	for deadline := time.Now().Add(20 * time.Second); kept() > 0; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("%d causes are kept", kept())
		}
	}
}
