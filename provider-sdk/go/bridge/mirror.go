package bridge

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"cloudprovider.ccm/sdk/bridge/internal/privateapi"
)

const (
	// A round ends when the host has named half of the nodes, after this long at least: its sweeps name all nodes, however
	// rare they are, and questions about a few nodes end no round. After the longest one, those nodes may be all that are left.
	shortestRound = 30 * time.Minute
	longestRound  = 6 * time.Hour
	// forgottenAfter is how many rounds a node is kept that the host no longer names.
	forgottenAfter = 2
	// informedWithin is how long a call waits for the provider's own informer to see the objects of the call.
	informedWithin = 2 * time.Second
)

// view is the Kubernetes API that the provider has, and what its informers have seen of it.
type view struct {
	// api is nil if the provider has a real Kubernetes API, which live reads.
	api  *privateapi.API
	live *live
	// wants says which fields of a node the host sends, for each purpose.
	wants *pb.Wants

	// informed and informedOfServices are the versions that the provider's informers have seen, services the version that they
	// must see.
	informed, informedOfServices informed
	services                     atomic.Int64
}

// mirror keeps what the host of one cluster sends: Nodes and Services in the private API, and the nodes as providers read them.
type mirror struct {
	*view
	// put puts an object into the private API.
	put func(api *privateapi.API, resource string, object runtime.Object) (int64, error)

	mu    sync.Mutex
	named map[string]*namedNode
	round round
	sets  []*namedSet
}

// mirrorOf returns the mirror of a cluster. All clusters share the private API; where two have an object of one name, the provider sees
// that of its own cluster: the one that it is initialized for, or else the first that calls.
func (b *bridge) mirrorOf(cluster *pb.ClusterRef) *mirror {
	uid, put := cluster.GetUid(), (*privateapi.API).Set
	b.leading.cluster.CompareAndSwap(nil, &uid)
	if !b.leading.isFor(uid) {
		put = (*privateapi.API).SetUnlessTaken
	}
	found, _ := b.mirrors.LoadOrStore(uid, &mirror{view: &b.view, put: put})
	return found.(*mirror)
}

// namedNode is a node as last sent in any request. It is replaced, never modified.
type namedNode struct {
	// ref holds everything known about the node.
	ref *pb.NodeRef
	// node is the Node that providers read.
	node *v1.Node
	// version is the node's version in the private API.
	version int64
	// round is the number of the round in which it was last named.
	round uint64
}

// round counts the nodes that the host has named since the round began.
type round struct {
	number uint64
	began  time.Time
	named  int
}

// nodes makes the nodes of a request visible to the provider before it is called, and returns them as it reads them;
// fields are those that the request may contain. The nodes are shared: copy a node before passing it to a provider that
// may write to it.
func (m *mirror) nodes(ctx context.Context, fields *pb.NodeFields, refs ...*pb.NodeRef) []*v1.Node {
	m.mu.Lock()
	known := make([]*namedNode, len(refs))
	newest := m.note(fields, refs, known, time.Now())
	m.mu.Unlock()
	m.informed.wait(ctx, newest)
	return m.nodesOf(known, nil)
}

// nodesOf returns nodes as the provider reads them: the real ones, if there is a real API that has them as the host told of them, in
// the fields that a digest covers.
func (m *mirror) nodesOf(known []*namedNode, covered *pb.NodeFields) []*v1.Node {
	nodes := make([]*v1.Node, len(known))
	for at, one := range known {
		if nodes[at] = one.node; m.live != nil {
			nodes[at] = m.live.node(one.node, covered)
		}
	}
	return nodes
}

// providerID returns the provider ID that the host last sent for a node; empty if it sent none.
func (m *mirror) providerID(node string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.named[node]; known != nil {
		return known.ref.GetProviderId()
	}
	return ""
}

// note records nodes and forgets those that are not sent any more. It returns the version at which the private
// API has all of them. Those that are still as in known, which has these nodes as seen before, are not compared again. The
// caller holds the lock.
func (m *mirror) note(fields *pb.NodeFields, refs []*pb.NodeRef, known []*namedNode, now time.Time) (newest int64) {
	for at, ref := range refs {
		if known[at] == nil || known[at] != m.named[ref.GetName()] {
			known[at] = m.noteOne(fields, ref)
		}
		m.names(known[at])
		newest = max(newest, known[at].version)
	}
	m.forget(now)
	return newest
}

func (m *mirror) noteOne(fields *pb.NodeFields, ref *pb.NodeRef) *namedNode {
	if m.named == nil {
		m.named = map[string]*namedNode{}
	}
	one, last := m.named[ref.GetName()], uint64(0)
	if one != nil {
		last = one.round
	}
	if all := completed(ref, fields, one); one == nil || !proto.Equal(one.ref, all) {
		one = &namedNode{ref: all, node: nodeOf(all), round: last}
		if m.api != nil {
			if before := m.named[ref.GetName()]; before != nil && before.node.UID != one.node.UID {
				m.api.Delete("nodes", "", ref.GetName(), before.node.UID)
			}
			// Conversion cannot fail: it is a Node.
			one.version, _ = m.put(m.api, "nodes", one.node)
		}
		m.named[ref.GetName()] = one
	}
	return one
}

// completed adds to a node the known fields that this request cannot contain: an Ensure carries fewer fields than a query of
// the instance, and must not remove any.
func completed(ref *pb.NodeRef, fields *pb.NodeFields, before *namedNode) *pb.NodeRef {
	if before == nil || before.ref.GetUid() != ref.GetUid() {
		return ref
	}
	all, known := proto.CloneOf(ref), before.ref
	if !fields.GetSystemUuid() && all.SystemUuid == "" {
		all.SystemUuid = known.GetSystemUuid()
	}
	if !fields.GetProvidedNodeIps() && len(all.ProvidedNodeIps) == 0 {
		all.ProvidedNodeIps = known.GetProvidedNodeIps()
	}
	if !fields.GetAddresses() && len(all.Addresses) == 0 {
		all.Addresses = known.GetAddresses()
	}
	if !fields.GetCreationTime() && all.CreationTime == nil {
		all.CreationTime = known.GetCreationTime()
	}
	if !fields.GetPodCidrs() && len(all.PodCidrs) == 0 {
		all.PodCidrs = known.GetPodCidrs()
	}
	if !fields.GetUnschedulable() {
		all.Unschedulable = known.GetUnschedulable()
	}
	if !fields.GetReadiness() {
		all.Readiness = known.GetReadiness()
	}
	if !fields.GetDeletionTime() && all.DeletionTime == nil {
		all.DeletionTime = known.GetDeletionTime()
	}
	for _, taint := range known.GetTaints() {
		if !wants(fields.GetTaints(), taint.GetKey()) {
			all.Taints = append(all.Taints, taint)
		}
	}
	all.Labels = completedMap(all.Labels, fields.GetLabels(), known.GetLabels())
	all.Annotations = completedMap(all.Annotations, fields.GetAnnotations(), known.GetAnnotations())
	return all
}

func completedMap(given map[string]string, wanted []string, known map[string]string) map[string]string {
	for key, value := range known {
		if _, there := given[key]; there || wants(wanted, key) {
			continue
		}
		if given == nil {
			given = map[string]string{}
		}
		given[key] = value
	}
	return given
}

// wants reports whether a key is wanted; a wanted key that ends in "/" or "*" is a prefix.
func wants(wanted []string, key string) bool {
	return slices.ContainsFunc(wanted, func(one string) bool {
		if prefix, all := strings.CutSuffix(one, "*"); all || strings.HasSuffix(one, "/") {
			return strings.HasPrefix(key, prefix)
		}
		return one == key
	})
}

// names counts a node in this round.
func (m *mirror) names(one *namedNode) {
	if now := m.round.number + 1; one.round != now {
		one.round = now
		m.round.named++
	}
}

// forget ends the round if it is over, and forgets nodes that were not named in the last ones.
func (m *mirror) forget(now time.Time) {
	lasts := now.Sub(m.round.began)
	if lasts < shortestRound || lasts < longestRound && 2*m.round.named < len(m.named) {
		return
	}
	m.round = round{number: m.round.number + 1, began: now}
	for name, node := range m.named {
		if node.round+forgottenAfter < m.round.number {
			delete(m.named, name)
			if m.api != nil {
				m.api.Delete("nodes", "", name, node.node.UID)
			}
		}
	}
}

// shown makes a Service visible to the provider, in the given way, and returns it as the provider is called with it.
func (m *mirror) shown(ctx context.Context, service *pb.Service, show func(*v1.Service)) (*v1.Service, error) {
	// The caller has meanwhile asked the provider who owns the balancer, and the term may have ended during that call.
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if m.live != nil {
		return m.live.service(ctx, service)
	}
	out := serviceOf(service)
	show(out)
	m.allServices(ctx)
	return out, nil
}

// applied shows the provider a Service with its new status.
func (m *mirror) applied(service *pb.Service, status *v1.LoadBalancerStatus) {
	now := serviceOf(service)
	now.Status.LoadBalancer = *status.DeepCopy()
	m.formerService(now)
}

// service makes a Service visible to the provider, in place of an earlier one of its name.
func (m *mirror) service(service *v1.Service) {
	if m.api != nil {
		version, _ := m.put(m.api, "services", service) // Conversion cannot fail: it is a Service.
		m.knows(version)
	}
}

// formerService makes a Service visible unless its name belongs to a later one: its call may outlast it, and a balancer may
// be deleted long after its Service.
func (m *mirror) formerService(service *v1.Service) {
	if m.api != nil {
		version, _ := m.api.SetUnlessTaken("services", service) // As above.
		m.knows(version)
	}
}

func (m *mirror) serviceGone(ref *pb.ServiceRef) {
	if m.api != nil {
		m.knows(m.api.Delete("services", ref.GetNamespace(), ref.GetName(), types.UID(ref.GetUid())))
	}
}

func (m *mirror) knows(version int64) {
	for {
		known := m.services.Load()
		if version <= known || m.services.CompareAndSwap(known, version) {
			return
		}
	}
}

// allServices waits until the provider's own informer has all visible Services: some providers decide from its list
// which rules of other Services to keep.
func (m *mirror) allServices(ctx context.Context) { m.informedOfServices.wait(ctx, m.services.Load()) }

// follow tracks the progress of the provider's own informer. One of a real API is not tracked.
func (i *informed) follow(informer cache.SharedIndexInformer) error {
	i.changed = make(chan struct{})
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    i.saw,
		UpdateFunc: func(_, object any) { i.saw(object) },
		DeleteFunc: i.saw,
	})
	return err
}

// informed is the newest version that an informer has seen.
type informed struct {
	mu      sync.Mutex
	version int64
	changed chan struct{}
}

func (i *informed) saw(object any) {
	if last, is := object.(cache.DeletedFinalStateUnknown); is {
		object = last.Obj
	}
	seen, err := meta.Accessor(object)
	if err != nil {
		return
	}
	version, err := strconv.ParseInt(seen.GetResourceVersion(), 10, 64)
	if err != nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.version = max(i.version, version)
	close(i.changed)
	i.changed = make(chan struct{})
}

// wait returns once the informer has seen a version, or after a short time: the provider's view is then slightly
// outdated.
func (i *informed) wait(ctx context.Context, version int64) {
	timer := time.NewTimer(informedWithin)
	defer timer.Stop()
	for {
		i.mu.Lock()
		changed, seen := i.changed, i.version
		i.mu.Unlock()
		if changed == nil || seen >= version {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
