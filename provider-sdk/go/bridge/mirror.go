package bridge

import (
	"context"
	"strconv"
	"sync"
	"time"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"cloudprovider.ccm/sdk/bridge/internal/privateapi"
)

const (
	// forgottenAfter: a node that the host has not named for so long is none any more. Every sweep of the host names all.
	forgottenAfter = time.Hour
	// informedWithin is how long a call waits until the provider's own informer knows the nodes that it is about.
	informedWithin = 2 * time.Second
)

// mirror keeps what the host names: Nodes and Services in the private API, and provider IDs by the names of nodes.
type mirror struct {
	// api is nil when the provider has another Kubernetes API.
	api *privateapi.API

	mu    sync.Mutex
	named map[string]namedNode

	informed informed
}

type namedNode struct {
	providerID string
	last       time.Time
}

// nodes makes the nodes of a request known to the provider, before it is asked about them.
func (m *mirror) nodes(ctx context.Context, refs ...*pb.NodeRef) {
	m.note(refs, time.Now())
	if m.api == nil || len(refs) == 0 {
		return
	}
	newest := int64(0)
	for _, ref := range refs {
		// What the converter cannot convert there is not: it is a Node.
		if version, err := m.api.Set("nodes", nodeOf(ref)); err == nil {
			newest = max(newest, version)
		}
	}
	m.informed.wait(ctx, newest)
}

// providerID answers that of a node, as the host last named it; empty when it did not.
func (m *mirror) providerID(node string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.named[node].providerID
}

// note remembers nodes, and forgets those that were not named for long.
func (m *mirror) note(refs []*pb.NodeRef, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.named == nil {
		m.named = map[string]namedNode{}
	}
	for _, ref := range refs {
		m.named[ref.GetName()] = namedNode{ref.GetProviderId(), now}
	}
	for name, node := range m.named {
		if now.Sub(node.last) > forgottenAfter {
			delete(m.named, name)
			if m.api != nil {
				m.api.Delete("nodes", "", name)
			}
		}
	}
}

// service makes a Service known.
func (m *mirror) service(service *pb.Service) {
	if m.api == nil {
		return
	}
	_, _ = m.api.Set("services", serviceOf(service)) // As in nodes: it is a Service.
}

func (m *mirror) serviceGone(ref *pb.ServiceRef) {
	if m.api != nil {
		m.api.Delete("services", ref.GetNamespace(), ref.GetName())
	}
}

// follow learns how far the provider's own informer of nodes is.
func (m *mirror) follow(informer cache.SharedIndexInformer) error {
	if m.api == nil {
		return nil // It follows the real API, at its own pace.
	}
	m.informed.changed = make(chan struct{})
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    m.informed.saw,
		UpdateFunc: func(_, object any) { m.informed.saw(object) },
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
	node, err := meta.Accessor(object)
	if err != nil {
		return
	}
	version, err := strconv.ParseInt(node.GetResourceVersion(), 10, 64)
	if err != nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.version = max(i.version, version)
	close(i.changed)
	i.changed = make(chan struct{})
}

// wait returns once the informer has seen a version, or soon at the latest: then the provider's knowledge is a little old.
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
