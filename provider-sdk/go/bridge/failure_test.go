package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"k8s.io/cloud-provider/api"
)

// H8: error texts become Events, which are aggregated only while they are equal. Request ids are in the metadata.
func TestRequestIDsAreNoPartOfATextForPeople(t *testing.T) {
	for _, row := range []struct{ text, want, id string }{
		{"operation error Elastic Load Balancing: CreateLoadBalancer, https response error StatusCode: 400, RequestID: 6f1c1f9e-3f0f-4c70-9d1e-9d3f0d2b7a51, DuplicateLoadBalancerName: taken",
			"operation error Elastic Load Balancing: CreateLoadBalancer, https response error StatusCode: 400, DuplicateLoadBalancerName: taken", "6f1c1f9e-3f0f-4c70-9d1e-9d3f0d2b7a51"},
		{"AccessDenied: no\n\tstatus code: 403, request id: 6f1c1f9e-3f0f-4c70-9d1e-9d3f0d2b7a51", "AccessDenied: no\n\tstatus code: 403", "6f1c1f9e-3f0f-4c70-9d1e-9d3f0d2b7a51"},
		{`POST https://api.example/v2/load_balancers: 422 (request "e4c9a1b2-0000-4c70-9d1e-9d3f0d2b7a51") name is taken`,
			"POST https://api.example/v2/load_balancers: 422 name is taken", "e4c9a1b2-0000-4c70-9d1e-9d3f0d2b7a51"},
		{"invalid input in field 'name' (invalid_input, 0a1b2c3d4e5f6071)", "invalid input in field 'name' (invalid_input)", "0a1b2c3d4e5f6071"},
		{"Expected HTTP response code [202], but got 409 (req-6f1c1f9e-3f0f-4c70-9d1e-9d3f0d2b7a51)", "Expected HTTP response code [202], but got 409", "req-6f1c1f9e-3f0f-4c70-9d1e-9d3f0d2b7a51"},
		{`{"error": "quota", "x-ms-correlation-request-id": "6f1c1f9e-3f0f-4c70-9d1e-9d3f0d2b7a51"}`, `{"error": "quota"}`, "6f1c1f9e-3f0f-4c70-9d1e-9d3f0d2b7a51"},
		{"the request failed: no such subnet subnet-0123456789abcdef0", "the request failed: no such subnet subnet-0123456789abcdef0", ""},
		{"server 6f1c1f9e-3f0f-4c70-9d1e-9d3f0d2b7a51 is locked", "server 6f1c1f9e-3f0f-4c70-9d1e-9d3f0d2b7a51 is locked", ""},
	} {
		var told *fault.Error
		if err := (&bridge{}).mapped(errors.New(row.text), "x"); !errors.As(err, &told) || told.Message() != "the cloud provider failed: "+row.want || told.Metadata("cloud_request_id") != row.id {
			t.Errorf("%s\nbecame %s\nand %q", row.text, told.Message(), told.Metadata("cloud_request_id"))
		}
	}
	progress := inProgress(api.NewRetryError("being made, request id: 6f1c1f9e-3f0f-4c70", time.Second))
	if progress.GetMessage() != "being made" {
		t.Error(progress)
	}
}

// D3: a wait for one object that took too long says nothing of the cloud, and its text names the remedy.
func TestAnErrorThatWrapsADeadlineIsAboutItsObject(t *testing.T) {
	err := fmt.Errorf("could not delete security groups [sg-1] for Load Balancer web: %w", context.DeadlineExceeded)
	var told *fault.Error
	if !errors.As((&bridge{}).mapped(err, "web"), &told) || told.Reason() != pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR || !strings.Contains(told.Message(), "sg-1") {
		t.Error(told)
	}
}

// P8: the delay that a provider asks for is bounded on both sides.
func TestARetryIsNeitherAtOnceNorNever(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{0: time.Second, 15 * time.Second: 15 * time.Second, 24 * 36500 * time.Hour: latestRetry} {
		if got := inProgress(api.NewRetryError("x", asked)).GetRetryAfter().AsDuration(); got != want {
			t.Errorf("%v became %v", asked, got)
		}
	}
}
