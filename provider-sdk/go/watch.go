package sdk

import (
	"context"
	"sync"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// Watch is an open watch of a provider.
type Watch struct {
	// Resumed reports that the caller's resume token was honoured: no change since it is missing. A token that was not
	// honoured is refused with INVALID_TOKEN.
	Resumed bool
	// Events are read no faster than the caller reads. When the channel is closed, the caller's stream ends with OK; after
	// a Failed event, with that error. Either way the host watches again, and sweeps. The sender must stop when the context
	// of WatchInstances is done.
	Events <-chan WatchEvent
}

// WatchEvent is one event of a watch, created by Changed, Bookmark or Failed.
type WatchEvent struct {
	change   *pb.InstanceChanged
	bookmark string
	err      error
}

// Changed means that an instance appeared, changed in any way, or disappeared.
func Changed(change *pb.InstanceChanged) WatchEvent { return WatchEvent{change: change} }

// Bookmark means that all changes up to this token have been sent. Sent at once, and repeated with every heartbeat until
// the next bookmark.
func Bookmark(resumeToken string) WatchEvent { return WatchEvent{bookmark: resumeToken} }

// Failed means that the watch has failed.
func Failed(err error) WatchEvent { return WatchEvent{err: err} }

// ChangeFeed is a source of changes for any number of watches: publish on one side, open watches on the other. It does
// not resume. Create one with NewChangeFeed.
type ChangeFeed struct {
	capacity int
	mu       sync.Mutex
	watches  map[chan WatchEvent]bool
}

// NewChangeFeed returns a feed that buffers this many changes (at least one) for a slow reader.
func NewChangeFeed(capacity int) *ChangeFeed {
	return &ChangeFeed{capacity: max(capacity, 1), watches: map[chan WatchEvent]bool{}}
}

// Publish reports a changed instance to every open watch. A watch that falls behind by more than the capacity ends, so
// that no change is lost silently. It does nothing without a watch: a new one starts with a sweep.
func (f *ChangeFeed) Publish(change *pb.InstanceChanged) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for events := range f.watches {
		select {
		case events <- Changed(change):
		default:
			f.end(events)
		}
	}
}

// Watch opens a watch from now on; it ends with its context.
func (f *ChangeFeed) Watch(ctx context.Context) *Watch {
	events := make(chan WatchEvent, f.capacity)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches[events] = true
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.end(events)
	})
	return &Watch{Events: events}
}

// end closes a watch once; the caller holds the lock.
func (f *ChangeFeed) end(events chan WatchEvent) {
	if f.watches[events] {
		delete(f.watches, events)
		close(events)
	}
}
