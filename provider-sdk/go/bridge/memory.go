package bridge

import (
	"fmt"
	"maps"
	"sync"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/proto"
)

// balancerKey is the natural key of a load balancer.
type balancerKey struct{ cluster, service string }

// known is what this process knows of a load balancer: what was applied, and whether anything has been tried since.
type known struct {
	// service is the Service last applied; nil if the balancer was applied by an earlier process.
	service *pb.Service
	// balancer is as last applied, with the digest of that; nil if nothing is known to be applied. It is never modified.
	balancer *pb.LoadBalancer
	// doubt is what a later change, which did not succeed, may have left half done.
	doubt doubt
	// failed reports that the last update failed.
	failed bool
}

// doubt is what may differ from what was applied.
type doubt int

const (
	nothing doubt = iota
	backends
	everything
)

// digest returns the digest of the state that the balancer certainly has; empty if that is unknown.
func (k known) digest() string {
	if k.doubt != nothing {
		return ""
	}
	return k.balancer.GetAppliedDigest()
}

// moment is a count of terms, which a mutation notes when it begins.
type moment uint64

// memory remembers what was applied to load balancers, since a provider of the old interface stores none of it. It ends with
// the process: the host knows what is applied across restarts.
//
// It cannot see what another replica's provider does while that replica's host leads. Its entries therefore hold for
// the term of the host that applied them: once a host has connected anew, another one may have led in between, and the
// entries count again only when a mutation shows that the term is the same.
type memory struct {
	mu    sync.Mutex
	known map[balancerKey]known
	names map[string]string
	// leaders are of clusters, by uid: each has one of its own.
	leaders map[string]leader
}

// leader is what is known of who leads a cluster.
type leader struct {
	// term is that of the last mutation, terms counts them.
	term    string
	terms   moment
	doubted bool
}

func newMemory() *memory {
	return &memory{known: map[balancerKey]known{}, names: map[string]string{}, leaders: map[string]leader{}}
}

// introduced records a call of GetInfo: a host connects or reconnects, or somebody merely asks for the provider's identity.
func (m *memory) introduced() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for cluster, of := range m.leaders {
		of.doubted = true
		m.leaders[cluster] = of
	}
}

// leads records a mutation by this leader of a cluster. Entries that the same leader applied remain valid.
func (m *memory) leads(cluster *pb.ClusterRef, fencing *pb.Fencing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.leaders[cluster.GetUid()]
	if term := fmt.Sprint(fencing.GetEpoch(), fencing.GetScope()); term != of.term {
		of.term = term
		of.terms++
		maps.DeleteFunc(m.known, func(key balancerKey, _ known) bool { return key.cluster == cluster.GetUid() })
	}
	of.doubted = false
	m.leaders[cluster.GetUid()] = of
}

func (m *memory) now(cluster *pb.ClusterRef) moment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leaders[cluster.GetUid()].terms
}

// recall returns what is known of a balancer; nothing, if it is not known.
func (m *memory) recall(key balancerKey) known {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaders[key.cluster].doubted {
		return known{}
	}
	return m.known[key]
}

// begins records that a change of the balancer begins, which may end half done.
func (m *memory) begins(key balancerKey, change doubt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.known[key]
	now.doubt = max(now.doubt, change)
	m.known[key] = now
}

// ensured records a complete Ensure that began at this moment.
func (m *memory) ensured(key balancerKey, begun moment, service *pb.Service, balancer *pb.LoadBalancer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if begun == m.leaders[key.cluster].terms {
		m.known[key] = known{service: service, balancer: balancer}
	}
}

// updated records a complete update, which replaces only the backends: whatever an Ensure left half done stays so.
func (m *memory) updated(key balancerKey, begun moment, balancer *pb.LoadBalancer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if begun != m.leaders[key.cluster].terms {
		return
	}
	now := m.known[key]
	now.balancer, now.failed = balancer, false
	if now.doubt == backends {
		now.doubt = nothing
	}
	m.known[key] = now
}

// updateFailed records a failed update, and reports whether the one before failed as well.
func (m *memory) updateFailed(key balancerKey) (again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.known[key]
	again, now.failed = now.failed, true
	m.known[key] = now
	return again
}

// erase forgets a Service that has no balancer any more.
func (m *memory) erase(key balancerKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, key)
}

// all returns the cluster's balancers; those in doubt without a digest.
func (m *memory) all(cluster string) (all []*pb.LoadBalancer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, one := range m.known {
		if key.cluster == cluster && one.balancer != nil && !m.leaders[cluster].doubted {
			balancer := proto.CloneOf(one.balancer)
			balancer.AppliedDigest = one.digest()
			all = append(all, balancer)
		}
	}
	return all
}

// elsewhere reports whether a Service of this uid has a balancer for another cluster, which names alone do not show.
func (m *memory) elsewhere(key balancerKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for other, one := range m.known {
		if other.service == key.service && other.cluster != key.cluster && one.balancer != nil {
			return true
		}
	}
	return false
}

// clusterName returns the first name that was given with a uid.
func (m *memory) clusterName(uid, given string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names[uid] == "" && given != "" {
		m.names[uid] = given
	}
	return m.names[uid]
}
