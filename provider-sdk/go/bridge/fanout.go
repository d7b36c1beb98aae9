package bridge

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

const (
	// spare is the fraction of a call's time that is reserved for answering unfinished items: a tenth.
	spare = 10
	// stragglerAfter is the minimum time that an item gets while others of its batch wait for it.
	stragglerAfter = 10 * time.Second
	// stragglerFactor: an item is late if it takes this many times as long as the slowest finished one.
	stragglerFactor = 3
)

// batch controls how the items of a batch are processed.
type batch[I, O any] struct {
	// places are taken by items in progress.
	places chan struct{}
	// patience is the minimum time that an item gets; by default stragglerAfter.
	patience time.Duration
	// work must return when its context ends, whatever the provider does, and leave its place.
	work func(ctx context.Context, item I, leave func()) O
	// late returns the result of an unfinished item; begun is false if its work has not started.
	late func(item I, begun bool) O
}

// answer processes all items and returns their results in order before the caller's deadline. A hanging item hardly delays
// the others.
func (b batch[I, O]) answer(ctx context.Context, items []I) []O {
	ctx, done := withSpare(ctx)
	defer done()
	running := &running[O]{turns: map[int]turn{}, answers: make(chan answer[O], len(items)), patience: b.patience}
	outs, next := make([]O, len(items)), 0
	for {
		free := b.places
		if next == len(items) || ctx.Err() != nil {
			free = nil
		}
		if free == nil && len(running.turns) == 0 {
			break
		}
		done, taken := running.wait(ctx, free)
		if taken {
			item := items[next]
			running.begin(ctx, next, func(ctx context.Context) O { return b.work(ctx, item, func() { <-free }) })
			next++
		}
		for _, one := range done {
			if one.late {
				one.out = b.late(items[one.at], true)
			}
			outs[one.at] = one.out
		}
	}
	for ; next < len(items); next++ {
		outs[next] = b.late(items[next], false)
	}
	return outs
}

// running are the items of a batch that are in progress.
type running[O any] struct {
	turns    map[int]turn
	answers  chan answer[O]
	patience time.Duration
	slowest  time.Duration
}

type turn struct {
	began  time.Time
	giveUp context.CancelFunc
}

// answer is the result of an item; late means that nobody waits for it any more.
type answer[O any] struct {
	at   int
	out  O
	late bool
}

func (r *running[O]) begin(ctx context.Context, at int, work func(context.Context) O) {
	ctx, giveUp := context.WithCancel(ctx)
	r.turns[at] = turn{time.Now(), giveUp}
	go func() { r.answers <- answer[O]{at: at, out: work(ctx)} }()
}

// wait returns the next finished item, or all late ones, or that it has taken one of these places.
func (r *running[O]) wait(ctx context.Context, places chan struct{}) (done []answer[O], taken bool) {
	straggling := r.straggling()
	defer straggling.Stop()
	for {
		select {
		case one := <-r.answers:
			if turn, waited := r.turns[one.at]; waited {
				r.slowest = max(r.slowest, time.Since(turn.began), 1)
				r.end(one.at)
				return []answer[O]{one}, false
			}
		case places <- struct{}{}:
			if ctx.Err() == nil {
				return nil, true
			}
			<-places // Both were ready.
		case <-ctx.Done():
			return r.late(0), false
		case <-straggling.C:
			return r.late(r.limit()), false
		}
	}
}

// limit is how long an item may take, relative to the slowest finished one.
func (r *running[O]) limit() time.Duration { return max(r.patience, stragglerFactor*r.slowest) }

// straggling fires when the oldest item is late; never before a first item has finished.
func (r *running[O]) straggling() *time.Timer {
	if r.slowest == 0 {
		timer := time.NewTimer(time.Hour)
		timer.Stop()
		return timer
	}
	oldest := time.Now()
	for _, turn := range r.turns {
		if turn.began.Before(oldest) {
			oldest = turn.began
		}
	}
	return time.NewTimer(time.Until(oldest.Add(r.limit())))
}

// late gives up all items that have taken at least this long.
func (r *running[O]) late(limit time.Duration) (late []answer[O]) {
	for at, turn := range r.turns {
		if time.Since(turn.began) >= limit {
			late = append(late, answer[O]{at: at, late: true})
			r.end(at)
		}
	}
	return late
}

func (r *running[O]) end(at int) {
	r.turns[at].giveUp()
	delete(r.turns, at)
}

// changeEach runs a batch of mutations, each with its key and wish. Late ones continue: the next call with the same
// wish gets their outcome.
func changeEach[I, O any](ctx context.Context, b *bridge, works *works, items []I, named func(I) (key, wish string), mutate func(context.Context, I) error, told func(I, error) O) []O {
	return batch[I, O]{
		places: make(chan struct{}, cmp.Or(cap(works.inBatches), routesAtOnce)), patience: b.patience,
		work: func(ctx context.Context, item I, leave func()) O {
			defer leave()
			key, wish := named(item)
			before, done := context.WithTimeout(ctx, b.patience/10)
			defer done()
			_, err := doAfter(ctx, before, works, works.inBatches, key, wish, func(ctx context.Context) (struct{}, error) { return struct{}{}, mutate(ctx, item) })
			return told(item, err)
		},
		late: func(item I, begun bool) O {
			if begun {
				return told(item, goesOn)
			}
			return told(item, queued)
		},
	}.answer(ctx, items)
}

// eachInTime runs a batch of reads. Late ones are cancelled, but not awaited; `late` is called by several at once.
func eachInTime[I, O any](ctx context.Context, b *bridge, items []I, key func(I) string, work func(context.Context, I) O, late func(item I, begun bool) O) []O {
	return batch[I, O]{
		places: b.reads.places, patience: b.patience,
		work: func(ctx context.Context, item I, leave func()) O {
			var begun atomic.Bool
			out, answered := inTime(ctx, b.reads, key(item), leave, func(ctx context.Context) O {
				begun.Store(true)
				return work(ctx, item)
			})
			if !answered {
				return late(item, begun.Load())
			}
			return out
		},
		late: late,
	}.answer(ctx, items)
}

// one is eachInTime for a single read, and also turns panics into errors.
func one[O any](ctx context.Context, b *bridge, key string, read func(context.Context) (O, error)) (O, error) {
	ctx, done := forCaller(ctx)
	defer done()
	ended, answered := inTurn(ctx, b.reads, key, func(ctx context.Context) (end outcome[O]) {
		end.err = guarded(func() (err error) {
			end.out, err = read(ctx)
			return err
		})
		return end
	})
	switch {
	case answered:
		return ended.out, ended.err
	case ctx.Err() != nil:
		return ended.out, ctx.Err() // The caller's time is over, and it has its answer.
	}
	return ended.out, tooLate()
}

// tooLate is the error of a read that did not finish in time: the state is unknown.
func tooLate() *fault.Error {
	return fault.New(pb.ErrorReason_ERROR_REASON_LOCATION_UNREACHABLE, "the cloud provider did not answer in time")
}

// withSpare returns a context that ends a little before the caller's deadline, so that the results so far can still be sent.
func withSpare(ctx context.Context) (context.Context, context.CancelFunc) {
	if left, is := remaining(ctx); is {
		return context.WithTimeout(ctx, left-left/spare)
	}
	return context.WithCancel(ctx)
}

// forCaller returns a context that ends with the caller's deadline even in a mutation, whose own context outlives it: for
// what precedes the work.
func forCaller(ctx context.Context) (context.Context, context.CancelFunc) {
	if left, is := remaining(ctx); is {
		return context.WithTimeout(ctx, left)
	}
	return context.WithCancel(ctx)
}

func remaining(ctx context.Context) (time.Duration, bool) {
	call, known := sdk.CallFrom(ctx)
	if !known {
		return 0, false
	}
	return call.Remaining()
}
