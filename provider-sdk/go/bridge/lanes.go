package bridge

import (
	"context"
	"sync"

	"cloudprovider.ccm/sdk/fault"
)

// lanes let one mutation of a key run at a time: providers were never called otherwise.
type lanes struct {
	mu   sync.Mutex
	busy map[string]*lane
}

type lane struct {
	place chan struct{}
	users int
}

// enter waits for the lane of a key, for as long as the caller waits; leave must be called at the end.
func (l *lanes) enter(ctx context.Context, key string) (leave func(), err error) {
	l.mu.Lock()
	if l.busy == nil {
		l.busy = map[string]*lane{}
	}
	one := l.busy[key]
	if one == nil {
		one = &lane{place: make(chan struct{}, 1)}
		l.busy[key] = one
	}
	one.users++
	l.mu.Unlock()
	forget := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(l.busy, key)
		}
	}
	// The context of a mutation outlives its caller; a place in the queue need not.
	ctx, done := forCaller(ctx)
	defer done()
	select {
	case one.place <- struct{}{}:
		return func() {
			<-one.place
			forget()
		}, nil
	case <-ctx.Done():
		forget()
		return nil, fault.ConcurrentOperation(key)
	}
}
