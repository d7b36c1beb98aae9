package checks

import (
	"errors"
	"fmt"
	"testing"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/proto"
)

func whole(digest string, nodes int) *pb.BackendSet {
	return &pb.BackendSet{Digest: digest, Nodes: many(nodes, func(at string) *pb.NodeRef {
		return &pb.NodeRef{Name: digest + "-" + at}
	})}
}

func named(digest string) *pb.BackendSet { return &pb.BackendSet{Digest: digest, NodesOmitted: true} }

// unknown returns the digest that a request is refused for, "" if it is accepted.
func unknown(t *testing.T, err error) string {
	t.Helper()
	var found *fault.Error
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &found) || found.Reason() != pb.ErrorReason_ERROR_REASON_UNKNOWN_BACKEND_SET:
		t.Fatalf("the wrong error: %v", err)
	}
	return found.Metadata("digest")
}

func ensureOf(cluster string, set *pb.BackendSet) *pb.EnsureLoadBalancerRequest {
	return &pb.EnsureLoadBalancerRequest{Cluster: &pb.ClusterRef{Uid: cluster}, Backends: set}
}

// [R:set-by-digest] [R:set-per-cluster]
func TestASetThatCameIsKnownByItsDigestInItsCluster(t *testing.T) {
	sets := BackendSets{MessageBytes: 1 << 20}
	for _, row := range []struct {
		cluster string
		given   *pb.BackendSet
		want    *pb.BackendSet
	}{
		{"one", named("a"), nil},
		{"one", whole("a", 3), whole("a", 3)},
		{"one", named("a"), whole("a", 3)},
		{"two", named("a"), nil},
		{"two", whole("a", 1), whole("a", 1)},
		{"one", named("a"), whole("a", 3)},
		// The latest set counts: nobody here can tell which of two sets a digest belongs to.
		{"one", whole("a", 2), whole("a", 2)},
		{"one", named("a"), whole("a", 2)},
	} {
		request := ensureOf(row.cluster, row.given)
		missing := unknown(t, sets.Complete(request))
		if row.want == nil && missing != "a" || row.want != nil && (missing != "" || !proto.Equal(request.GetBackends(), row.want)) {
			t.Errorf("%s, %v: %v, unknown %q", row.cluster, row.given, request.GetBackends(), missing)
		}
	}
	batch := &pb.BatchUpdateLoadBalancersRequest{Cluster: &pb.ClusterRef{Uid: "one"}, Backends: named("a")}
	if missing := unknown(t, sets.Complete(batch)); missing != "" || len(batch.GetBackends().GetNodes()) != 2 {
		t.Errorf("a batch: %v, unknown %q", batch, missing)
	}
	first, second := ensureOf("one", named("a")), ensureOf("one", whole("a", 2))
	if unknown(t, errors.Join(sets.Complete(first), sets.Complete(second))) != "" || first.GetBackends() != second.GetBackends() {
		t.Error("requests of one cluster do not share a set")
	}
	if err := sets.Complete(&pb.DeleteLoadBalancerRequest{}); err != nil {
		t.Error(err)
	}
}

func TestMemoryOfSetsIsBoundedAndTheLastFourStay(t *testing.T) {
	sets := BackendSets{MessageBytes: 1000}
	for _, digest := range []string{"a", "b", "c", "d", "e", "f"} {
		if err := sets.Complete(ensureOf("one", whole(digest, 150))); err != nil {
			t.Fatal(err)
		}
	}
	if sets.bytes > 4000 {
		t.Error(sets.bytes, "bytes are kept")
	}
	for at := range 100 {
		err := errors.Join(sets.Complete(ensureOf("one", whole(fmt.Sprint(at), 1))), sets.Complete(ensureOf("one", named("0"))))
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(sets.sets) != keptSets {
		t.Error(len(sets.sets), "sets are kept")
	}
	for _, digest := range []string{"0", "99", "98", "97"} {
		if unknown(t, sets.Complete(ensureOf("one", named(digest)))) != "" {
			t.Error(digest, "is not known any more")
		}
	}
}
