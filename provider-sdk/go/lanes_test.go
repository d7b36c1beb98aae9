package sdk

import (
	"testing"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

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
