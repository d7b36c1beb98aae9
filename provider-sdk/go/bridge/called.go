package bridge

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"cloudprovider.ccm/sdk/bridge/internal/privateapi"
)

const (
	// maxEvents is the maximum number of Events in one answer.
	maxEvents = 8
	// changedRetry is when the host retries after the provider has written on the Service of its call: upstream's controller
	// sees the change and retries at once, whatever the provider asked for.
	changedRetry = time.Second
)

// called tracks the Services of the provider's running calls, and what it does to them through Kubernetes.
type called struct {
	*bridge
	mu    sync.Mutex
	calls map[string]*call
	// events are those that no answer has carried yet, by the Service's uid.
	events map[string][]*pb.ProviderEvent
	// warned limits the warning that provider-written changes are lost with this process to one.
	warned sync.Once
}

// call is one call for a Service.
type call struct {
	key     balancerKey
	changed bool
}

func newCalled(b *bridge) *called {
	c := &called{bridge: b, calls: map[string]*call{}, events: map[string][]*pb.ProviderEvent{}}
	if api := b.mirror.api; api != nil {
		api.Listen(privateapi.Listener{Written: c.written, Told: c.told, Missed: missed})
	}
	return c
}

// missed logs each kind of refused request once; most providers make it when they start.
func missed(verb string, of schema.GroupResource) {
	slog.Warn("refused a request that needs a real Kubernetes API; set --kubeconfig if the cloud provider depends on it",
		"verb", verb, "kind", of.String())
}

// begin makes a Service visible to the provider and returns it as the provider is called with it. The caller ends the call.
func (c *called) begin(ctx context.Context, key balancerKey, service *pb.Service, show func(*v1.Service)) (out *v1.Service, of *call, err error) {
	// The caller has meanwhile asked the provider who owns the balancer, and the term may have ended during that call.
	if err := context.Cause(ctx); err != nil {
		return nil, nil, err
	}
	if c.mirror.live != nil {
		out, err = c.mirror.live.service(ctx, service)
		return out, &call{key: key}, err
	}
	of = &call{key: key}
	out = c.memory.mark(key).onto(serviceOf(service))
	c.mu.Lock()
	c.calls[key.service] = of
	c.mu.Unlock()
	show(out)
	c.mirror.allServices(ctx)
	return out, of, nil
}

// applied shows the provider a Service with its new status.
func (c *called) applied(key balancerKey, service *pb.Service, status *v1.LoadBalancerStatus) {
	now := c.memory.mark(key).onto(serviceOf(service))
	now.Status.LoadBalancer = *status.DeepCopy()
	c.mirror.formerService(now)
}

func (c *called) end(of *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[of.key.service] == of {
		delete(c.calls, of.key.service)
	}
}

// written records a provider's change of the Service of its call.
func (c *called) written(before, after *v1.Service) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.calls[string(before.UID)]
	if of == nil {
		return errors.New("without --kubeconfig a provider may write only to the Service that it is called with, while it is called")
	}
	now := c.memory.mark(of.key).after(before, after)
	if now.isLost(c.annotationWrites) {
		c.warned.Do(func() {
			slog.Warn("the cloud provider writes annotations on Services, which are lost when this process ends: list them in --service-annotation-writes, or set --kubeconfig",
				"service", after.Namespace+"/"+after.Name)
		})
	}
	c.memory.keep(of.key, now)
	of.changed = true
	return nil
}

// told keeps an Event on a Service for the next answer about that Service. The log has all Events.
func (c *called) told(on v1.ObjectReference, kind, reason, message string) {
	// Events are recorded in the background, so the call may have ended; the next one then carries them.
	if on.Kind != "Service" || on.UID == "" || reason == "" || c.mirror.api.UID("services", on.Namespace, on.Name) != on.UID {
		return
	}
	message, _ = withoutRequestID(message)
	event := &pb.ProviderEvent{Type: pb.EventType_EVENT_TYPE_NORMAL, Reason: reason, Message: fault.RetryLater(0, message).Message()}
	if kind == v1.EventTypeWarning {
		event.Type = pb.EventType_EVENT_TYPE_WARNING
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	uid := string(on.UID)
	if len(c.events[uid]) < maxEvents {
		c.events[uid] = append(c.events[uid], event)
	}
}

// takeEvents returns the Events of a Service that have not been sent yet.
func (c *called) takeEvents(uid string) []*pb.ProviderEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := c.events[uid]
	delete(c.events, uid)
	return events
}

// sooner shortens the retry of a call during which the provider has changed the Service.
func (of *call) sooner(err error) error {
	if after, retry := retryAfter(err); retry && of.changed && after > changedRetry {
		progress := inProgress(err)
		return &unfinished{progress.GetReason(), progress.GetMessage(), changedRetry}
	}
	return err
}
