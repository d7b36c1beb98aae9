package sdk

import (
	"context"
	"testing"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"cloudprovider.ccm/sdk/internal/checks"
	"google.golang.org/protobuf/proto"
)

// Each repeat of one that hangs would take another of the places.
func TestARequestAboutNoKeyIsJoinedToo(t *testing.T) {
	var lanes lanes
	begun, ended := 0, make(chan outcome)
	defer close(ended)
	begin := func(any, proto.Message) (context.Context, <-chan outcome, error) {
		begun++
		return t.Context(), ended, nil
	}
	may := func(checks.Subject, uint64) error { return nil }
	for _, user := range []string{"a", "a", "b"} {
		if _, err := lanes.run(&pb.AddSshKeyToAllInstancesRequest{User: user}, may, begin); err != nil {
			t.Fatal(err)
		}
	}
	if begun != 2 {
		t.Errorf("%d begun", begun)
	}
}

// The digest of a set stands for its nodes, which may be thousands.
func TestBackendsAreComparedByTheirDigest(t *testing.T) {
	ensure := func(digest, node, revision string) *pb.EnsureLoadBalancerRequest {
		return &pb.EnsureLoadBalancerRequest{
			DesiredDigest: revision, Backends: &pb.BackendSet{Digest: digest, Nodes: []*pb.NodeRef{{Name: node}}},
		}
	}
	for name, row := range map[string]struct {
		a, b *pb.EnsureLoadBalancerRequest
		same bool
	}{
		"by digest":       {ensure("d", "a", "1"), ensure("d", "b", "1"), true},
		"another digest":  {ensure("d", "a", "1"), ensure("e", "a", "1"), false},
		"another request": {ensure("d", "a", "1"), ensure("d", "a", "2"), false},
		"no digest":       {ensure("", "a", "1"), ensure("", "b", "1"), false},
	} {
		a, err := wishOf(row.a)
		b, other := wishOf(row.b)
		if err != nil || other != nil || (a == b) != row.same {
			t.Errorf("%s: %v %v", name, err, other)
		}
		if len(row.a.GetBackends().GetNodes()) != 1 {
			t.Errorf("%s: the request has lost its nodes", name)
		}
	}
}
