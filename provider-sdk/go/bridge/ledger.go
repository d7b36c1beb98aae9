package bridge

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/proto"
)

// ledger records what was applied to load balancers, since a provider of the old interface stores none of it.
type ledger interface {
	// now returns the logical time, which a mutation notes when it begins.
	now() moment
	// recall returns what was last applied to a balancer; nil if no balancer is known.
	recall(balancerKey) *applied
	// doubt makes the digest of a balancer unknown, before anything changes. If it fails, nothing may change.
	doubt(balancerKey) error
	// remember records what a mutation that began at this moment has applied. If it fails, the state stays unknown.
	remember(balancerKey, moment, *applied)
	// all returns everything known about a cluster's balancers, in a stable order.
	all(cluster string) []*applied
	// elsewhere reports whether a Service of this uid has a balancer for another cluster, which names alone do not show.
	elsewhere(balancerKey) bool
	// clusterName returns the first name that was given with a uid.
	clusterName(uid, given string) string
	// mark returns the mark of a Service, and keep stores it. erase deletes everything once the Service has no balancer.
	mark(balancerKey) mark
	keep(balancerKey, mark) error
	erase(balancerKey) error
	// leads reports a mutation by this leader. Entries that the same leader applied remain valid.
	leads(*pb.Fencing)
	// durable reports whether entries outlive this process.
	durable() bool
	// gap names what the ledger cannot know; empty if it knows everything.
	gap() string
}

// balancerKey is the natural key of a load balancer.
type balancerKey struct{ cluster, service string }

// applied is the last state that was fully applied. It is replaced, never modified.
type applied struct {
	service *pb.Service
	// balancer has no digest from the beginning of a change until one succeeds.
	balancer *pb.LoadBalancer
}

// doubted returns the same without the digest.
func (a *applied) doubted() *applied {
	balancer := proto.CloneOf(a.balancer)
	balancer.AppliedDigest = ""
	return &applied{a.service, balancer}
}

// moment is a ledger's logical time.
type moment uint64

// memory is a ledger of this process.
//
// It cannot see what another replica's provider does while that replica's host leads. Its entries therefore hold for
// the term of the host that applied them: once a host has connected anew, another one may have led in between, and the
// entries count again only when a mutation shows that the term is the same.
type memory struct {
	mu    sync.Mutex
	known map[balancerKey]*applied
	marks map[balancerKey]mark
	names map[string]string
	// term is that of the last mutation, terms counts them.
	term    string
	terms   moment
	doubted bool
}

func newMemory() *memory {
	return &memory{known: map[balancerKey]*applied{}, marks: map[balancerKey]mark{}, names: map[string]string{}}
}

// introduced records a call of GetInfo: a host connects or reconnects, or somebody merely asks for the provider's identity.
func (m *memory) introduced() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doubted = true
}

func (m *memory) leads(fencing *pb.Fencing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if term := fmt.Sprint(fencing.GetEpoch(), fencing.GetScope()); term != m.term {
		m.term = term
		m.terms++
		clear(m.known)
	}
	m.doubted = false
}

func (m *memory) durable() bool { return false }

func (m *memory) now() moment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.terms
}

func (m *memory) recall(key balancerKey) *applied {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.doubted {
		return nil
	}
	return m.known[key]
}

func (m *memory) doubt(key balancerKey) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.known[key]; known != nil {
		m.known[key] = known.doubted()
	}
	return nil
}

func (m *memory) remember(key balancerKey, begun moment, what *applied) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if begun == m.terms {
		m.known[key] = what
	}
}

func (m *memory) mark(key balancerKey) mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.marks[key]
}

func (m *memory) keep(key balancerKey, now mark) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.marks[key] = now
	return nil
}

func (m *memory) erase(key balancerKey) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.marks, key)
	delete(m.known, key)
	return nil
}

func (m *memory) all(cluster string) (all []*applied) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, one := range m.known {
		if key.cluster == cluster && !m.doubted {
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
