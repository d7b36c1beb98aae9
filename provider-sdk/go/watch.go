package sdk

import (
	"context"
	"sync"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// Watch is an open watch of a provider.
type Watch struct {
	// Resumed says that the caller's resume token was honoured: nothing since it is missing.
	Resumed bool
	// Events are read no faster than the caller takes them. When the channel is closed, the caller's stream ends with OK; after
	// a Failed event, with that error. Either way the host watches again and sweeps. Whoever sends must stop when the context
	// of WatchInstances is done.
	Events <-chan WatchEvent
}

// WatchEvent is one thing that a watch has to say: made by Changed, Bookmark or Failed.
type WatchEvent struct {
	change   *pb.InstanceChanged
	bookmark string
	err      error
}

// Changed says that an instance changed in any way, appeared or went.
func Changed(change *pb.InstanceChanged) WatchEvent { return WatchEvent{change: change} }

// Bookmark says that all changes up to this token were given: sent at once, and repeated with every heartbeat until the
// next one.
func Bookmark(resumeToken string) WatchEvent { return WatchEvent{bookmark: resumeToken} }

// Failed says that the watch is broken.
func Failed(err error) WatchEvent { return WatchEvent{err: err} }

// ChangeFeed is a source of changes for any number of watches: publish on one side, hand out watches on the other. It does
// not resume. Make one with NewChangeFeed.
type ChangeFeed struct {
	capacity int
	mu       sync.Mutex
	watches  map[chan WatchEvent]bool
}

// NewChangeFeed makes a feed that keeps as many changes (at least one) for a slow reader.
func NewChangeFeed(capacity int) *ChangeFeed {
	return &ChangeFeed{capacity: max(capacity, 1), watches: map[chan WatchEvent]bool{}}
}

// Publish tells every open watch that an instance changed. A watch that is more than the capacity behind is ended, so that no
// change is lost silently. Without a watch nothing happens: a new one starts with a sweep.
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

// Watch opens a watch from now; it ends with its context.
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
