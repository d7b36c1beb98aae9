package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/bridge/vendors"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"
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

// A provider may quote any field of the object that it is called with, and of the nodes of a balancer. What stands there pauses and
// freezes nothing; the cloud's own words do, whatever else stands there.
func TestNoFieldOfAnObjectIsTheCloudsWord(t *testing.T) {
	const (
		throttled = "googleapi: Error 429"
		refused   = "googleapi: Error 401: Invalid Credentials"
		internal  = pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR
		limited   = pb.ErrorReason_ERROR_REASON_RATE_LIMITED
		invalid   = pb.ErrorReason_ERROR_REASON_CLOUD_CREDENTIALS_INVALID
	)
	addressed := func(ip string) *v1.Service {
		return &v1.Service{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{cleanupFinalizer}}, Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, LoadBalancerIP: ip}}
	}
	node := func(id, name string) *v1.Node {
		return &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-429", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", Subresource: "status"}}},
			Spec:       v1.NodeSpec{ProviderID: id, PodCIDR: "fd00:10:244:429::/64"},
			Status: v1.NodeStatus{
				Addresses:  []v1.NodeAddress{{Type: v1.NodeHostName, Address: name}},
				Images:     []v1.ContainerImage{{Names: []string{"registry.example/error-pages"}}},
				Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Message: "kubelet is posting ready status"}},
			},
		}
	}
	for _, row := range []struct {
		known func(error) *fault.Error
		err   error
		want  pb.ErrorReason
	}{
		{vendors.GCE, of(fmt.Errorf("requested ip %q is neither static nor assigned", throttled), addressed(throttled)), internal},
		{vendors.GCE, of(fmt.Errorf("requested ip %q is neither static nor assigned", refused), addressed(refused)), internal},
		{vendors.GCE, of(errors.New("error splitting providerID: "+throttled), node(throttled, "n")), internal},
		{vendors.GCE, of(errors.New("no such host: "+refused), node("gce://1", refused)), internal},
		{vendors.GCE, of(errors.New("error splitting providerID: "+throttled), addressed(""), node(throttled, "n")), internal},
		{vendors.GCE, of(errors.New("no such host: "+refused), addressed(""), node("gce://1", refused), node("gce://2", refused)), internal},
		{vendors.GCE, of(fmt.Errorf("no zone in %q", `gce://"`+throttled), addressed(""), node(`gce://"`+throttled, "n")), internal},
		{vendors.GCE, of(errors.New("no such destination: "+throttled), &cloudprovider.Route{DestinationCIDR: throttled}), internal},
		{vendors.Azure, of(fmt.Errorf("parsing %q: invalid syntax", "\nHTTPStatusCode: 429"), addressed("\nHTTPStatusCode: 429")), internal},
		{vendors.AWS, of(errors.New("unsupported load balancer affinity: x"), node("unsupported load balancer affinity: x", "n")), internal},
		{vendors.GCE, of(errors.New(throttled), addressed("192.0.2.1"), node("gce://1", "n")), limited},
		{vendors.GCE, of(errors.New(refused), addressed("192.0.2.1")), invalid},
		{vendors.AWS, of(errors.New("Throttling: Rate exceeded\n\tstatus code: 400, request id: 1"), node("aws:///i-1", "n")), limited},
		{vendors.AWS, of(errors.New("Protocol UDP not supported by LoadBalancer"), addressed("")), pb.ErrorReason_ERROR_REASON_UNSUPPORTED_FEATURE},
		{vendors.AWS, of(errors.New("unsupported load balancer affinity: ClientIP"), addressed("")), pb.ErrorReason_ERROR_REASON_UNSUPPORTED_FEATURE},
	} {
		if got := fault.ReasonOf((&bridge{errors: row.known}).mapped(row.err, "x")); got != row.want {
			t.Errorf("%v: %v, want %v", row.err, got, row.want)
		}
	}
}
