package bridge

import (
	"context"
	"sync"
	"time"
)

// reads limits the provider's reads, over all calls: so many at once, one per key at a time, so that a hanging call hangs only once,
// and none once too many hang. Nobody can end a call that ignores its context.
type reads struct {
	// places are taken by running calls. One that takes long leaves its place, as one that hangs must not hold up all others,
	// unless there is only one place: then it would run beside others, which the provider does not stand.
	places chan struct{}
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
	// blocked reports that a call hangs in the only place.
	blocked bool
}

// reading is one call.
type reading struct {
	ended chan struct{}
	began time.Time
	// hangs reports that the call still runs though nobody waits for it any more.
	hangs bool
}

// inTurn is inTime for a read that has to wait for a place.
func inTurn[O any](ctx context.Context, r *reads, key string, read func(context.Context) O) (out O, answered bool) {
	select {
	case r.places <- struct{}{}:
		return inTime(ctx, r, key, func() { <-r.places }, read)
	case <-ctx.Done():
		return out, false
	}
}

// inTime runs one read of a key, which has a place; false if it did not finish before the context ended, or could not start.
func inTime[O any](ctx context.Context, r *reads, key string, leave func(), read func(context.Context) O) (out O, answered bool) {
	leave = sync.OnceFunc(leave)
	late := time.AfterFunc(r.patience, func() {
		// Also while it waits for another read of the key.
		if cap(r.places) > 1 {
			leave()
		}
	})
	mine, may := r.enter(ctx, key)
	if !may {
		late.Stop()
		leave()
		return out, false
	}
	answer, blocks := make(chan O, 1), time.AfterFunc(hangsAfter*r.patience, func() { r.blocks(mine) })
	go func() {
		defer late.Stop()
		defer blocks.Stop()
		defer leave()
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
		case mine != nil && ctx.Err() != nil:
			r.leave(key, mine)
			return nil, false
		case mine != nil:
			return mine, true
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
	if r.isStuck() {
		return nil, nil
	}
	if r.running == nil {
		r.running = map[string]*reading{}
	}
	mine = &reading{ended: make(chan struct{}), began: time.Now()}
	r.running[key] = mine
	return nil, mine
}

// leave ends a read.
func (r *reads) leave(key string, mine *reading) {
	r.change(func() {
		delete(r.running, key)
		close(mine.ended)
		if mine.hangs {
			r.hanging--
		}
		r.blocked = false
	})
}

// giveUp records that nobody waits for a read any more.
func (r *reads) giveUp(mine *reading) {
	r.change(func() {
		if isClosed(mine.ended) {
			return
		}
		mine.hangs = true
		r.hanging++
	})
}

// blocks records that a read still runs that has taken far too long, if it has the only place.
func (r *reads) blocks(mine *reading) {
	r.change(func() { r.blocked = r.blocked || cap(r.places) == 1 && !isClosed(mine.ended) })
}

// change reports to stuck, in order, what a change changes.
func (r *reads) change(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.isStuck()
	change()
	if is := r.isStuck(); is != was && r.stuck != nil {
		r.stuck(is)
	}
}

// isStuck reports whether no further read may begin; the caller holds the lock.
func (r *reads) isStuck() bool { return r.blocked || r.hanging >= r.limit }

// hangs returns how many calls hang, and whether they are too many.
func (r *reads) hangs() (calls int, stuck bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hanging, r.isStuck()
}
