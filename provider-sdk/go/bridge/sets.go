package bridge

import (
	"context"
	"hash/maphash"
	"slices"
	"time"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"
)

// keptSets is how many sets of backends are kept: one for each kind of Service there is, and those of just before.
const keptSets = 16

// namedSet is a set of backends, converted and made known once for all Services that share it.
type namedSet struct {
	digest string
	// members tells sets of one digest apart: a digest that lies must not give a balancer the wrong machines.
	members uint64
	changes uint64
	known   []*namedNode
	version int64
}

var seed = maphash.MakeSeed()

// backends is nodes for a set of backends: the slice is the caller's own, the nodes are shared, as those of an informer are.
func (m *mirror) backends(ctx context.Context, set *pb.BackendSet) []*v1.Node {
	if set.GetDigest() == "" {
		return m.nodes(ctx, m.wants.GetBackend(), set.GetNodes()...)
	}
	m.mu.Lock()
	found := m.set(set, time.Now())
	m.mu.Unlock()
	m.informed.wait(ctx, found.version)
	return m.nodesOf(found.known)
}

// set answers a set as it is known, or makes it known. The caller holds the lock.
func (m *mirror) set(set *pb.BackendSet, now time.Time) *namedSet {
	members := membersOf(set.GetNodes())
	at := slices.IndexFunc(m.sets, func(one *namedSet) bool { return one.digest == set.GetDigest() && one.members == members })
	var found *namedSet
	if at >= 0 {
		found = m.sets[at]
		m.sets = slices.Delete(m.sets, at, at+1)
	}
	if found == nil || found.changes != m.changes {
		found = &namedSet{digest: set.GetDigest(), members: members}
		found.known, found.version = m.note(m.wants.GetBackend(), set.GetNodes(), now)
		found.changes = m.changes
	}
	for _, one := range found.known {
		one.last = now
	}
	m.sets = append(m.sets, found)
	if len(m.sets) > keptSets {
		m.sets = slices.Delete(m.sets, 0, 1)
	}
	return found
}

func membersOf(nodes []*pb.NodeRef) uint64 {
	var hash maphash.Hash
	hash.SetSeed(seed)
	for _, node := range nodes {
		for _, text := range []string{node.GetName(), node.GetUid(), node.GetProviderId()} {
			hash.WriteString(text)
			hash.WriteByte(0)
		}
	}
	return hash.Sum64()
}
