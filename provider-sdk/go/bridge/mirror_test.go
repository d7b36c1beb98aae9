package bridge

import (
	"fmt"
	"sync"
	"testing"
	"time"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// D9: a node is forgotten if sweeps no longer name it, however rare they are, and not because few others are asked about.
func TestANodeIsForgottenWhenSweepsOmitIt(t *testing.T) {
	var all []*pb.NodeRef
	for at := range 600 {
		all = append(all, &pb.NodeRef{Name: fmt.Sprint("n", at), Uid: fmt.Sprint("u", at)})
	}
	for _, every := range []time.Duration{5 * time.Minute, 2 * time.Hour} {
		m, now := &mirror{view: &view{}}, time.Now()
		// As the host does, in batches.
		sweep := func(refs []*pb.NodeRef) {
			for at := 0; at < len(refs); at += 500 {
				batch := refs[at:min(at+500, len(refs))]
				m.note(nil, batch, make([]*namedNode, len(batch)), now)
			}
		}
		for range 4 {
			now = now.Add(every)
			sweep(all)
			for range 20 {
				now = now.Add(every / 20)
				m.note(nil, all[7:8], make([]*namedNode, 1), now)
			}
			if len(m.named) != len(all) {
				t.Fatalf("every %v: %d are known, though all are named", every, len(m.named))
			}
		}
		began := now
		for len(m.named) == len(all) && now.Sub(began) < 24*time.Hour {
			now = now.Add(every)
			sweep(all[1:])
		}
		if took := now.Sub(began); m.named["n0"] != nil || took < time.Hour || took > max(2*time.Hour, 4*every) {
			t.Errorf("every %v: forgotten after %v: %v", every, took, m.named["n0"] == nil)
		}
	}
}

// A cluster that shrinks by more than half leaves too few nodes to be half of what was known.
func TestNodesAreForgottenThoughFewAreLeft(t *testing.T) {
	var all []*pb.NodeRef
	for at := range 100 {
		all = append(all, &pb.NodeRef{Name: fmt.Sprint("n", at), Uid: fmt.Sprint("u", at)})
	}
	m, now := &mirror{view: &view{}}, time.Now()
	sweep := func(refs []*pb.NodeRef) {
		now = now.Add(5 * time.Minute)
		m.note(nil, refs, make([]*namedNode, len(refs)), now)
	}
	for range 30 {
		sweep(all)
	}
	began := now
	for len(m.named) > 40 && now.Sub(began) < 7*24*time.Hour {
		sweep(all[:40])
	}
	if took := now.Sub(began); len(m.named) != 40 || took < time.Hour || took > 24*time.Hour {
		t.Errorf("%d are known after %v", len(m.named), took)
	}
	// Nothing says that the others are gone while nobody asks.
	now = now.Add(30 * 24 * time.Hour)
	if sweep(all[:1]); len(m.named) != 40 {
		t.Errorf("%d are known after a pause", len(m.named))
	}
}

// All calls of a cluster share a set, while queries tell of its nodes. The race detector sees it.
func TestASetIsSharedByCallsThatOverlap(t *testing.T) {
	m, set := &mirror{view: &view{}}, &pb.BackendSet{Digest: "1", Nodes: []*pb.NodeRef{{Name: "a", Uid: "a"}}}
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for at := range 200 {
				m.nodes(t.Context(), &pb.NodeFields{PodCidrs: true}, &pb.NodeRef{Name: "a", Uid: "a", SystemUuid: fmt.Sprint(at)})
				if nodes := m.backends(t.Context(), set); len(nodes) != 1 || nodes[0].UID != "a" {
					t.Error(nodes)
				}
			}
		})
	}
	calls.Wait()
}
