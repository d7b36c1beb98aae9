package bridge

import (
	"context"
	"sync"

	"cloudprovider.ccm/sdk"
)

// spare is the part of a call's time that is kept to answer for what was not answered in it: a tenth.
const spare = 10

// each works on all items, some at a time, and answers in their order.
func each[I, O any](ctx context.Context, limit int, items []I, work func(context.Context, I) O) []O {
	outs, places := make([]O, len(items)), make(chan struct{}, limit)
	var all sync.WaitGroup
	for at, item := range items {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			outs[at] = work(ctx, item)
		})
	}
	all.Wait()
	return outs
}

// eachInTime is each for reads: when nine tenths of the caller's time are over, items that were not answered are answered by
// late. Those that still run are told to give up, but not waited for: one machine that hangs costs no other.
func eachInTime[I, O any](ctx context.Context, limit int, items []I, work func(context.Context, I) O, late func(I) O) []O {
	bound, done := bounded(ctx)
	defer done()
	one := func(ctx context.Context, item I) O {
		if ctx.Err() != nil {
			return late(item)
		}
		answered := make(chan O, 1)
		go func() { answered <- work(ctx, item) }()
		select {
		case out := <-answered:
			return out
		case <-ctx.Done():
			return late(item)
		}
	}
	return each(bound, limit, items, one)
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if call, known := sdk.CallFrom(ctx); known {
		if left, is := call.Remaining(); is {
			return context.WithTimeout(ctx, left-left/spare)
		}
	}
	return context.WithCancel(ctx)
}
