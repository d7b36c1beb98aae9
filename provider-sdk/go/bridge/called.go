package bridge

import (
	"context"
	"errors"
	"fmt"
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
	// maxEvents is how many Events one answer may tell.
	maxEvents = 8
	// changedRetry is when to ask again once a provider wrote on the Service that it was called with: upstream's controller sees the
	// change and asks at once, whatever the provider said.
	changedRetry = time.Second
)

// called are the Services of the provider's running calls, and what it does to them through Kubernetes.
type called struct {
	*bridge
	mu    sync.Mutex
	calls map[string]*call
	// events are those of a Service that no answer has told yet.
	events map[string][]*pb.ProviderEvent
	// warned: once is enough to say that what a provider writes on Services is lost with this process.
	warned sync.Once
}

// call is one call with a Service.
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

// missed logs once what a provider cannot have: most ask for it at their start.
func missed(verb string, of schema.GroupResource) {
	slog.Warn("the cloud provider asked for what only a real Kubernetes API has, and was refused; what needs it fails until there is a --kubeconfig",
		"verb", verb, "kind", of.String())
}

// begin creates a Service visible to the provider and returns it in that form. The caller ends the call.
func (c *called) begin(ctx context.Context, key balancerKey, service *pb.Service) (out *v1.Service, of *call, err error) {
	// The provider was asked whose balancer it is meanwhile, and leadership may have ended with that call.
	if err := context.Cause(ctx); err != nil {
		return nil, nil, err
	}
	if c.mirror.live != nil {
		out, err = c.mirror.live.service(ctx, service)
		return out, &call{key: key}, err
	}
	of = &call{key: key}
	out = c.ledger.mark(key).onto(serviceOf(service))
	c.mu.Lock()
	c.calls[key.service] = of
	c.mu.Unlock()
	c.mirror.service(out)
	c.mirror.allServices(ctx)
	return out, of, nil
}

// applied shows the provider the new state of a Service, as its status would.
func (c *called) applied(key balancerKey, service *pb.Service, status *v1.LoadBalancerStatus) {
	now := c.ledger.mark(key).onto(serviceOf(service))
	now.Status.LoadBalancer = *status.DeepCopy()
	c.mirror.service(now)
}

// end ends a call.
func (c *called) end(of *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[of.key.service] == of {
		delete(c.calls, of.key.service)
	}
}

// written records what a provider writes on a Service during its call.
func (c *called) written(before, after *v1.Service) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.calls[string(before.UID)]
	if of == nil {
		return errors.New("without --kubeconfig a provider may write only on the Service that it is called with, while it is called")
	}
	if c.stateDir == "" && len(c.annotationWrites) == 0 {
		c.warned.Do(func() {
			slog.Warn("the cloud provider writes on Services; that is lost when this process ends: give --state-dir, or name the annotations in --service-annotation-writes",
				"service", after.Namespace+"/"+after.Name)
		})
	}
	if err := c.ledger.keep(of.key, c.ledger.mark(of.key).after(before, after)); err != nil {
		return fmt.Errorf("what the provider wrote cannot be kept: %w", err)
	}
	of.changed = true
	return nil
}

// told keeps an Event for the next response about its Service; all others go to the log.
func (c *called) told(on v1.ObjectReference, kind, reason, message string) {
	// Events are recorded in the background, so the call may have ended; the next one tells them.
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

// sooner returns when to retry the work of a call.
func (of *call) sooner(err error) error {
	if after, retry := retryAfter(err); retry && of.changed && after > changedRetry {
		progress := inProgress(err)
		return &unfinished{progress.GetReason(), progress.GetMessage(), changedRetry}
	}
	return err
}
