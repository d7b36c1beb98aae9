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
