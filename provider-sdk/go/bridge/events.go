package bridge

import (
	"sync"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxEvents is the maximum number of Events in one answer.
const maxEvents = 8

// events are those that a provider without a real Kubernetes API recorded on Services, until an answer carries them.
type events struct {
	mu   sync.Mutex
	kept map[types.UID][]*pb.ProviderEvent
}

// keep keeps an Event on a Service for the next answer about that Service: Events are recorded in the background, so the call
// may have ended.
func (e *events) keep(service types.UID, kind, reason, message string) {
	message, _ = withoutRequestID(message)
	event := &pb.ProviderEvent{Type: pb.EventType_EVENT_TYPE_NORMAL, Reason: reason, Message: fault.RetryLater(0, message).Message()}
	if kind == v1.EventTypeWarning {
		event.Type = pb.EventType_EVENT_TYPE_WARNING
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.kept == nil {
		e.kept = map[types.UID][]*pb.ProviderEvent{}
	}
	if len(e.kept[service]) < maxEvents {
		e.kept[service] = append(e.kept[service], event)
	}
}

// take returns the Events of a Service that no answer has carried yet.
func (e *events) take(service string) []*pb.ProviderEvent {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := e.kept[types.UID(service)]
	delete(e.kept, types.UID(service))
	return kept
}
