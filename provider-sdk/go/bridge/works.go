package bridge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"cloudprovider.ccm/sdk"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// keptFor is how long the outcome of a mutation is kept for a caller that retries; after that, the mutation runs again.
const keptFor = time.Minute

// works runs mutations, one per key at a time, as upstream's controllers always call providers.
//
// A mutation that outlasts its caller continues. The next call with the same wish joins it or gets its outcome; one with
// another wish waits until it has ended.
type works struct {
	mu    sync.Mutex
	byKey map[string]*work
	// places limits the mutations that run at once, over all calls; nil: no limit. Those of batches have places of their own, as
	// upstream changes the nodes of balancers beside everything else.
	places, inBatches chan struct{}
	// hangs is how long a mutation keeps its place. One that takes longer hangs, and must not hold up all others for ever.
	hangs time.Duration
}

// take waits for one of these places; false if the context ends first.
func (w *works) take(ctx context.Context, places chan struct{}) (leave func(), taken bool) {
	if places == nil {
		return func() {}, true
	}
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	if ctx.Err() != nil { // Both were ready.
		<-places
		return nil, false
	}
	once := sync.OnceFunc(func() { <-places })
	hangs := time.AfterFunc(w.hangs, once)
	return func() { hangs.Stop(); once() }, true
}

// background is how long what a mutation has left running may go on.
const background = 10 * time.Minute

type work struct {
	// wish identifies the mutation: works with equal wishes are the same.
	wish    string
	waiting int
	ended   chan struct{}
	// outcome and at are set once ended is closed.
	outcome any
	at      time.Time
}

// unfinished means that a mutation continues or has not started: nothing is wrong, and the caller retries.
type unfinished struct {
	reason, message string
	retryAfter      time.Duration
}

func (u *unfinished) Error() string { return u.message }

// Their messages are stable from call to call, so that Events are too.
var (
	goesOn = &unfinished{"CALL_RUNS", "the cloud provider's call has not returned yet", 5 * time.Second}
	queued = &unfinished{"QUEUED", "waiting for other calls of the cloud provider", time.Second}
)

// wishOf identifies what a request wants. Another leader's request is another wish, since a third leader may have acted in
// between.
func wishOf(verb string, request interface {
	GetCluster() *pb.ClusterRef
	GetFencing() *pb.Fencing
}, what string) string {
	fencing := request.GetFencing()
	return fmt.Sprintf("%s %s of %s, %s %d", verb, what, request.GetCluster().GetUid(), fencing.GetScope(), fencing.GetEpoch())
}

// outcome is the outcome of a mutation.
type outcome[O any] struct {
	out O
	err error
}

// do runs a mutation, or joins an identical one. The error is goesOn or queued if the context ends first: queued if the
// work has not started because another wish for the same key, or others in all places, are still running. The work's context
// outlives the caller's.
func do[O any](ctx context.Context, w *works, key, wish string, mutate func(context.Context) (O, error)) (O, error) {
	return doAfter(ctx, ctx, w, w.places, key, wish, mutate)
}

// doAfter is do for an item of a batch, which waits for earlier work only for as long as before lasts.
func doAfter[O any](ctx, before context.Context, w *works, places chan struct{}, key, wish string, mutate func(context.Context) (O, error)) (O, error) {
	var none O
	work := func(ctx context.Context) any {
		var end outcome[O]
		end.err = guarded(func() (err error) {
			end.out, err = mutate(ctx)
			return err
		})
		return end
	}
	for {
		if ctx.Err() != nil || before.Err() != nil {
			return none, queued
		}
		one, mine := w.enter(ctx, key, wish, nil, work)
		if one == nil {
			leave, taken := w.take(before, places)
			if !taken {
				return none, queued
			}
			if one, mine = w.enter(ctx, key, wish, leave, work); !mine {
				leave() // Meanwhile another call has started it.
			}
		}
		patience := before
		if mine {
			patience = ctx
		}
		ended, equal := w.wait(patience, one), one.wish == wish
		switch {
		case ended && equal:
			end := one.outcome.(outcome[O])
			return end.out, end.err
		case equal:
			return none, goesOn
		}
	}
}

// enter returns the work of a key to wait for: the running one, the unread outcome of an identical one, or one that
// it starts now, for which mine is true. It is nil if one must start, and the caller has no place (leave) for it.
func (w *works) enter(ctx context.Context, key, wish string, leave func(), mutate func(context.Context) any) (one *work, mine bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.byKey[key]; one != nil {
		if !one.hasEnded() {
			one.waiting++
			return one, false
		}
		delete(w.byKey, key)
		if one.wish == wish && time.Since(one.at) < keptFor {
			return one, false
		}
	}
	if leave == nil {
		return nil, false
	}
	if w.byKey == nil {
		w.byKey = map[string]*work{}
	}
	one = &work{wish: wish, waiting: 1, ended: make(chan struct{})}
	w.byKey[key] = one
	bounded, done := sdk.Outlive(ctx)
	lasting, end := sdk.Lasting(ctx)
	stop := context.AfterFunc(bounded, end)
	go func() {
		defer done()
		outcome := mutate(lasting)
		stop()
		// What the provider leaves running in the background goes on, as behind upstream's controllers, whose context lives as long
		// as they lead.
		time.AfterFunc(background, end)
		leave()
		w.end(key, one, outcome)
	}()
	return one, true
}

func (w *work) hasEnded() bool { return isClosed(w.ended) }

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// wait reports whether the work ended before the context did.
func (w *works) wait(ctx context.Context, one *work) bool {
	select {
	case <-one.ended:
		return true
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.hasEnded() {
		return true
	}
	one.waiting--
	return false
}

// end passes an outcome to all that wait, or keeps it for the next caller.
func (w *works) end(key string, one *work, outcome any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one.outcome, one.at = outcome, time.Now()
	if one.waiting > 0 {
		delete(w.byKey, key)
	}
	w.forgetOld(one.at)
	close(one.ended)
}

func (w *works) forgetOld(now time.Time) {
	for key, one := range w.byKey {
		if one.hasEnded() && now.Sub(one.at) > keptFor {
			delete(w.byKey, key)
		}
	}
}

// late counts running works that nobody waits for any more.
func (w *works) late() (late int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.byKey {
		if !one.hasEnded() && one.waiting == 0 {
			late++
		}
	}
	return late
}

// busy returns the keys of the running works.
func (w *works) busy() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]bool{}
	for key, one := range w.byKey {
		if !one.hasEnded() {
			out[key] = true
		}
	}
	return out
}
