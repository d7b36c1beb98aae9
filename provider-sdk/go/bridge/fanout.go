package bridge

import (
	"context"
	"sync"
	"time"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
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
func eachInTime[I, O any](ctx context.Context, b *bridge, items []I, key func(I) string, work func(context.Context, I) O, late func(I) O) []O {
	ctx, done := withSpare(ctx)
	defer done()
	return each(ctx, b.concurrency, items, func(ctx context.Context, item I) O {
		out, answered := inTime(ctx, b.reads, key(item), func(ctx context.Context) O { return work(ctx, item) })
		if !answered {
			return late(item)
		}
		return out
	})
}

// one is eachInTime for a single read, which may panic, too.
func one[O any](ctx context.Context, b *bridge, key string, read func(context.Context) (O, error)) (O, error) {
	type outcome struct {
		out O
		err error
	}
	ctx, done := forCaller(ctx)
	defer done()
	ended, answered := inTime(ctx, b.reads, key, func(ctx context.Context) (end outcome) {
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
		return ended.out, ctx.Err() // The caller has been told already that its time is over.
	}
	return ended.out, tooLate()
}

// tooLate is the error of a read that was not answered in time: nothing is known.
func tooLate() *fault.Error {
	return fault.New(pb.ErrorReason_ERROR_REASON_LOCATION_UNREACHABLE, "the cloud provider did not answer in time")
}

// withSpare ends a little before the caller's deadline, so that what is known by then can be answered.
func withSpare(ctx context.Context) (context.Context, context.CancelFunc) {
	if left, is := remaining(ctx); is {
		return context.WithTimeout(ctx, left-left/spare)
	}
	return context.WithCancel(ctx)
}

// forCaller ends with the caller's deadline, also in a mutation, whose context outlives it: for what comes before the work.
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
