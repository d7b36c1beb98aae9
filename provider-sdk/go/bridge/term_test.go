package bridge

import (
	"context"
	"testing"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// What a provider started in Initialize belongs to the cluster that it was initialized for. D6: the suite leads other clusters.
func TestATermOfAnotherClusterEndsNothing(t *testing.T) {
	for cluster, ends := range map[string]bool{"ours": true, "other": false} {
		exited := false
		b := &bridge{leading: newLeading()}
		b.leading.exit = func(error) { exited = true }
		b.leading.begin.Do(func() {})
		ours := "ours"
		b.leading.cluster.Store(&ours)
		term, end := context.WithCancelCause(context.Background())
		end(fault.StaleLeader("lease"))
		if b.whileLed(term, &pb.ClusterRef{Uid: cluster}); exited != ends {
			t.Errorf("a term of %s ended it: %t", cluster, exited)
		}
	}
}

// Two clusters may share a bridge; each has a leader of its own.
func TestWhatIsKnownOfOneClusterOutlivesMutationsOfAnother(t *testing.T) {
	memory := newMemory()
	one, other := &pb.ClusterRef{Uid: "one"}, &pb.ClusterRef{Uid: "other"}
	key := balancerKey{"one", "service"}
	leads := func(cluster *pb.ClusterRef, scope string) { memory.leads(cluster, &pb.Fencing{Epoch: 1, Scope: scope}) }
	is := func(when, want string) {
		t.Helper()
		if got := memory.recall(key).digest(); got != want {
			t.Errorf("%s: %q is known, want %q", when, got, want)
		}
	}
	leads(one, "a")
	begun := memory.now(one)
	memory.begins(key, everything)
	leads(other, "b")
	memory.ensured(key, begun, &pb.Service{}, &pb.LoadBalancer{AppliedDigest: "first"})
	is("ensured meanwhile", "first")
	memory.introduced()
	leads(other, "b")
	is("of a leader in doubt", "")
	leads(one, "a")
	is("of the same one", "first")
	memory.begins(key, everything)
	leads(other, "c")
	memory.updated(key, memory.now(one), &pb.LoadBalancer{AppliedDigest: "second"})
	is("updated after an Ensure that failed", "")
	leads(one, "c")
	if known := memory.recall(key); known.balancer != nil {
		t.Errorf("of the leader before: %v", known)
	}
}
