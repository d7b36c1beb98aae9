package bridge

import (
	"context"
	"slices"
	"time"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"
)

// keptSets is how many backend sets are kept: one for each kind of Service, and the previous ones.
const keptSets = 16

// namedSet is a backend set, converted and made visible once for all Services that share it.
type namedSet struct {
	// set is shared by all requests of a cluster that refer to it, whole or by its digest.
	set *pb.BackendSet
	// known has the set's nodes as they were seen last. Those that a query has told about since are seen again.
	known   []*namedNode
	version int64
}

// backends returns the nodes of a backend set. The slice is the caller's own; the nodes are shared, like an informer's.
func (m *mirror) backends(ctx context.Context, set *pb.BackendSet) []*v1.Node {
	m.mu.Lock()
	found := m.set(set, time.Now())
	// Another call may change the set's own ones meanwhile.
	known, version := slices.Clone(found.known), found.version
	m.mu.Unlock()
	m.informed.wait(ctx, version)
	return m.nodesOf(known, m.wants.GetBackend())
}

// set returns a backend set that is already converted, or converts it. The caller holds the lock.
func (m *mirror) set(set *pb.BackendSet, now time.Time) *namedSet {
	at := slices.IndexFunc(m.sets, func(one *namedSet) bool { return one.set == set })
	var found *namedSet
	if at >= 0 {
		found = m.sets[at]
		m.sets = slices.Delete(m.sets, at, at+1)
	}
	if found == nil {
		found = &namedSet{set: set, known: make([]*namedNode, len(set.GetNodes()))}
	}
	found.version = m.note(m.wants.GetBackend(), set.GetNodes(), found.known, now)
	m.sets = append(m.sets, found)
	if len(m.sets) > keptSets {
		m.sets = slices.Delete(m.sets, 0, 1)
	}
	return found
}
