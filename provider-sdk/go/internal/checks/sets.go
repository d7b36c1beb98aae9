package checks

import (
	"slices"
	"sync"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/proto"
)

const (
	// keptSets is the number of sets kept. Beyond it, the least recently used ones are forgotten, as after a restart.
	keptSets = 16
	// keptMessages limits their memory, in messages of the largest size: the last four sets, which the contract requires, fit.
	keptMessages = 4
)

// BackendSets keeps backend sets received with their nodes, so that later requests may refer to them by digest alone.
// Methods always receive complete sets, which the requests of a cluster share.
type BackendSets struct {
	// MessageBytes is the size of the largest message.
	MessageBytes int

	mu sync.Mutex
	// sets ends with the most recently used one.
	sets  []knownSet
	bytes int
}

type knownSet struct {
	cluster string
	set     *pb.BackendSet
	bytes   int
}

// Complete keeps the set of a request if it came with its nodes, and fills it in otherwise.
func (b *BackendSets) Complete(request any) error {
	var set **pb.BackendSet
	switch request := request.(type) {
	case *pb.EnsureLoadBalancerRequest:
		set = &request.Backends
	case *pb.BatchUpdateLoadBalancersRequest:
		set = &request.Backends
	default:
		return nil
	}
	cluster, digest, size := Cluster(request).GetUid(), (*set).GetDigest(), proto.Size(*set)
	b.mu.Lock()
	defer b.mu.Unlock()
	known, found := b.take(cluster, digest)
	switch {
	case (*set).GetNodesOmitted() && !found:
		return fault.UnknownBackendSet(digest)
	case found && ((*set).GetNodesOmitted() || size == known.bytes):
		// All calls that are made before the first one is answered come with all nodes: they share one set, too. The latest counts
		// if it is evidently another one.
		*set = known.set
		b.put(known)
	case digest != "":
		b.put(knownSet{cluster, *set, size})
	}
	for len(b.sets) > keptSets || b.bytes > keptMessages*b.MessageBytes {
		b.bytes -= b.sets[0].bytes
		b.sets = slices.Delete(b.sets, 0, 1)
	}
	return nil
}

func (b *BackendSets) take(cluster, digest string) (known knownSet, found bool) {
	at := slices.IndexFunc(b.sets, func(one knownSet) bool { return one.cluster == cluster && one.set.GetDigest() == digest })
	if at < 0 {
		return known, false
	}
	known = b.sets[at]
	b.sets = slices.Delete(b.sets, at, at+1)
	b.bytes -= known.bytes
	return known, true
}

func (b *BackendSets) put(known knownSet) {
	b.bytes += known.bytes
	b.sets = append(b.sets, known)
}
