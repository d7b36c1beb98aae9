package sdk

import (
	"context"
	"strings"
	"testing"
	"time"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/types/known/durationpb"
)

type nothing struct{ Instances }

type routesOnly struct{ Routes }

func (nothing) ListInstances(context.Context, *pb.ListInstancesRequest) (*pb.ListInstancesResponse, error) {
	return nil, nil
}

func TestWhatDoesNotFitIsNamed(t *testing.T) {
	has := func(capabilities ...pb.Capability) Option {
		return WithCapabilities(&pb.GetCapabilitiesResponse{Capabilities: capabilities})
	}
	limit := func(bytes uint32) Option {
		return WithCapabilities(&pb.GetCapabilitiesResponse{Limits: &pb.Limits{MaxMessageBytes: bytes}})
	}
	for i, row := range []struct {
		name    string
		options []Option
		want    string
	}{
		{"test", nil, ""},
		{"a.b-c.d", []Option{WithCapabilities(nil)}, ""},
		{"Test", nil, `"Test" is not a DNS subdomain`},
		{"", nil, "not a DNS subdomain"},
		{"a..b", nil, "not a DNS subdomain"},
		{"-a", nil, "not a DNS subdomain"},
		{strings.Repeat("a", 64), nil, "not a DNS subdomain"},
		{"test", []Option{WithVendorVersion(strings.Repeat("v", 65))}, "vendor version has 65 bytes"},
		{"test", []Option{WithProcessEpoch("")}, "epoch has 0 bytes"},
		{"test", []Option{WithProviderIDPrefix("")}, "prefix is empty"},
		{"test", []Option{WithInstances(nothing{})}, "use WithProviderIDPrefix"},
		{"test", []Option{WithInstances(nothing{}), WithProviderIDPrefix("t://")}, ""},
		{"test", []Option{has(pb.Capability_CAPABILITY_INSTANCES_WATCH)}, "WatchInstances is missing"},
		{"test", []Option{has(pb.Capability_CAPABILITY_INSTANCES_LIST)}, "ListInstances is missing"},
		{"test", []Option{has(pb.Capability_CAPABILITY_SSH_KEYS)}, "AddSshKeyToAllInstances is missing"},
		{"test", []Option{has(pb.Capability_CAPABILITY_INSTANCE_POD_CIDRS)}, "Instances is missing"},
		{"test", []Option{has(pb.Capability_CAPABILITY_ADOPTION)}, "LoadBalancers is missing"},
		{"test", []Option{has(pb.Capability_CAPABILITY_ROUTE_NODE_ADDRESSES)}, "Routes is missing"},
		{"test", []Option{has(pb.Capability_CAPABILITY_ROUTE_NODE_ADDRESSES), WithRoutes(routesOnly{})}, ""},
		{"test", []Option{has(pb.Capability_CAPABILITY_UNSPECIFIED)}, "unspecified"},
		{"test", []Option{has(99)}, "unknown"},
		{"test", []Option{has(pb.Capability_CAPABILITY_ROUTE_OWNERSHIP, pb.Capability_CAPABILITY_ROUTE_OWNERSHIP), WithRoutes(routesOnly{})}, "duplicate"},
		{"test", []Option{limit(4<<20 - 1)}, "max_message_bytes"},
		{"test", []Option{limit(64<<20 + 1)}, "max_message_bytes"},
		{"test", []Option{limit(64 << 20)}, ""},
		{"test", []Option{WithCapabilities(&pb.GetCapabilitiesResponse{LoadBalancerClasses: []string{"x"}})}, "use WithLoadBalancers"},
		{"test", []Option{WithCapabilities(&pb.GetCapabilitiesResponse{
			Intervals: &pb.Intervals{BookmarkInterval: durationpb.New(0)},
		})}, "intervals.bookmark_interval is 0s"},
	} {
		_, err := New(row.name, row.options...)
		if (err == nil) != (row.want == "") || (err != nil && !strings.Contains(err.Error(), row.want)) {
			t.Errorf("row %d: got %v, want %q", i, err, row.want)
		}
	}
}

func TestDefaultsStandWhereNothingIsAdvertised(t *testing.T) {
	got := advertise(&pb.GetCapabilitiesResponse{})
	if got.limits.GetMaxBatchInstances() != 500 || got.limits.GetMaxPageSize() != 500 || got.messageBytes != 16<<20 ||
		got.bookmarkInterval != 30*time.Second || got.watchMaxAge != 30*time.Minute {
		t.Errorf("got %+v", got)
	}
}

// Every RPC of the contract is in the bounded list, with mutations distinguished from reads.
func TestMethodsAreKnown(t *testing.T) {
	kinds := map[kind]int{}
	for full, method := range methods {
		if methodOf(full) != method {
			t.Errorf("%s became %v", full, methodOf(full))
		}
		kinds[method.kind]++
	}
	if kinds[mutation] != 6 || kinds[read] != 10 || kinds[word] != 1 || methodOf("/x.Y/Z") != unknownMethod {
		t.Errorf("got %v", kinds)
	}
}
