package bridge

import (
	"context"
	"sync"

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
	ctx, done := bounded(ctx)
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
	ctx, done := bounded(ctx)
	defer done()
	ended, answered := inTime(ctx, b.reads, key, func(ctx context.Context) (end outcome) {
		end.err = guarded(func() (err error) {
			end.out, err = read(ctx)
			return err
		})
		return end
	})
	if !answered {
		return ended.out, tooLate()
	}
	return ended.out, ended.err
}

// tooLate is the error of a read that was not answered in time: nothing is known.
func tooLate() *fault.Error {
	return fault.New(pb.ErrorReason_ERROR_REASON_LOCATION_UNREACHABLE, "the cloud provider did not answer in time")
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if call, known := sdk.CallFrom(ctx); known {
		if left, is := call.Remaining(); is {
			return context.WithTimeout(ctx, left-left/spare)
		}
	}
	return context.WithCancel(ctx)
}
