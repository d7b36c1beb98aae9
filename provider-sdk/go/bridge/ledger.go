package bridge

import (
	"slices"
	"strings"
	"sync"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// ledger holds what was applied to balancers, since a provider of the old kind stores none of it.
type ledger interface {
	// now answers the moment at which a mutation begins.
	now() moment
	// recall answers what is applied to a balancer; nil when that is not known.
	recall(balancerKey) *applied
	// forget makes it not known, before anything is changed. Without that nothing may be changed.
	forget(balancerKey) error
	// remember keeps what was applied by a mutation that began at a moment. When it cannot, it is not known.
	remember(balancerKey, moment, *applied)
	// all answers what is known of a cluster's balancers, in a stable order.
	all(cluster string) []*applied
	// elsewhere says whether a Service of this uid has a balancer for another cluster: names alone do not tell.
	elsewhere(balancerKey) bool
	// clusterName answers the first name that was given with a uid.
	clusterName(uid, given string) string
	// gap names what cannot be known; empty when there is no such thing.
	gap() string
}

// balancerKey is the natural key of a balancer.
type balancerKey struct{ cluster, service string }

// applied is what was applied wholly.
type applied struct {
	service  *pb.Service
	balancer *pb.LoadBalancer
}

// moment is a time as a ledger counts it.
type moment uint64

// memory is a ledger of this process.
//
// It cannot see what another replica's provider does while that one's host leads. So it holds for the host that applied it:
// once a host has introduced itself anew, another one may have led in between.
type memory struct {
	mu    sync.Mutex
	known map[balancerKey]*applied
	names map[string]string
	hosts moment
}

func newMemory() *memory {
	return &memory{known: map[balancerKey]*applied{}, names: map[string]string{}}
}

// introduced says that a host begins to talk.
func (m *memory) introduced() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hosts++
	clear(m.known)
}

func (m *memory) now() moment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hosts
}

func (m *memory) recall(key balancerKey) *applied {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known[key]
}

func (m *memory) forget(key balancerKey) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, key)
	return nil
}

func (m *memory) remember(key balancerKey, begun moment, what *applied) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if begun == m.hosts {
		m.known[key] = what
	}
}

func (m *memory) all(cluster string) (all []*applied) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, one := range m.known {
		if key.cluster == cluster {
			all = append(all, one)
		}
	}
	return byService(all)
}

func (m *memory) elsewhere(key balancerKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for other := range m.known {
		if other.service == key.service && other.cluster != key.cluster {
			return true
		}
	}
	return false
}

func (m *memory) clusterName(uid, given string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names[uid] == "" && given != "" {
		m.names[uid] = given
	}
	return m.names[uid]
}

func (m *memory) gap() string { return "before the present host" }

func byService(all []*applied) []*applied {
	slices.SortFunc(all, func(a, b *applied) int {
		return strings.Compare(a.service.GetRef().GetUid(), b.service.GetRef().GetUid())
	})
	return all
}
