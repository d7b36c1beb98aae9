package bridge

import (
	"context"
	"sync"
	"time"
)

// reads limits the provider's reads: one per key at a time, so that a hanging call hangs only once, and none once too
// many hang. Nobody can end a call that ignores its context.
type reads struct {
	// limit is how many calls may hang.
	limit int
	// patience is the minimum time after which a call counts as hanging for later callers: a caller in a hurry, which gives up
	// after milliseconds, says nothing about the cloud.
	patience time.Duration
	// stuck is called when the limit is reached, and again when that is over.
	stuck func(bool)

	mu      sync.Mutex
	running map[string]*reading
	hanging int
}

// reading is one call.
type reading struct {
	ended chan struct{}
	began time.Time
	// hangs reports that the call still runs though nobody waits for it any more.
	hangs bool
}

// inTime runs one read of a key; false if it did not finish before the context ended, or could not start.
func inTime[O any](ctx context.Context, r *reads, key string, read func(context.Context) O) (out O, answered bool) {
	mine, may := r.enter(ctx, key)
	if !may {
		return out, false
	}
	answer := make(chan O, 1)
	go func() {
		defer r.leave(key, mine)
		answer <- read(ctx)
	}()
	select {
	case out = <-answer:
		return out, true
	case <-ctx.Done():
		r.giveUp(mine)
		return out, false
	}
}

// enter waits for an earlier read of the same key, unless that one has been hanging for a while.
func (r *reads) enter(ctx context.Context, key string) (*reading, bool) {
	for {
		before, mine := r.tryEnter(key)
		switch {
		case mine != nil:
			return mine, ctx.Err() == nil || r.leave(key, mine)
		case before == nil:
			return nil, false
		}
		select {
		case <-before:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// tryEnter returns the new read, or a channel that closes when the read to wait for ends, or neither if none may start.
func (r *reads) tryEnter(key string) (before <-chan struct{}, mine *reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if running := r.running[key]; running != nil {
		if running.hangs && time.Since(running.began) >= r.patience {
			return nil, nil
		}
		return running.ended, nil
	}
	if r.hanging >= r.limit {
		return nil, nil
	}
	if r.running == nil {
		r.running = map[string]*reading{}
	}
	mine = &reading{ended: make(chan struct{}), began: time.Now()}
	r.running[key] = mine
	return nil, mine
}

// leave ends a read. It always returns false.
func (r *reads) leave(key string, mine *reading) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, key)
	close(mine.ended)
	if mine.hangs {
		r.hanging--
		r.tell(r.hanging == r.limit-1, false)
	}
	return false
}

// giveUp records that nobody waits for a read any more.
func (r *reads) giveUp(mine *reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isClosed(mine.ended) {
		return
	}
	mine.hangs = true
	r.hanging++
	r.tell(r.hanging == r.limit, true)
}

// tell reports changes to stuck in order; the caller holds the lock.
func (r *reads) tell(changed, stuck bool) {
	if changed && r.stuck != nil {
		r.stuck(stuck)
	}
}

// hangs returns how many calls hang, and whether they are too many.
func (r *reads) hangs() (calls int, stuck bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hanging, r.hanging >= r.limit
}
