package sdk

import (
	"context"
	"errors"
	"sync"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"cloudprovider.ccm/sdk/internal/checks"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	// mutationBound ends a mutation whose caller has long disconnected: the longest deadline of the contract.
	mutationBound = 10 * time.Minute
	// headstart is how much earlier "deadline exceeded" is sent, so that it still reaches the caller.
	headstart = 5 * time.Millisecond
	// loggedItems is how many items of one batch the log names: a cloud that is away fails all of them in the same way.
	loggedItems = 10
)

// core is the path of every call: admitted or refused, run with its context, ended in time.
type core struct {
	provider  *Provider
	revisions checks.Revisions
	sets      checks.BackendSets
	lanes     lanes
	// As many calls as advertised run at once: others wait, and the cloud's limits hold whoever calls.
	reading, mutating places
	leaders
}

// admit refuses calls that must not reach a method, in the contract's order, and returns the term under which a
// mutation runs.
func (c *core) admit(ctx context.Context, call *Call, request any) (term context.Context, err error) {
	call.clusterIs(checks.Cluster(request))
	if items, batch := checks.Items(request); batch {
		c.provider.metrics.batch(call.method, items)
	}
	if capability, needed := capabilityOf[call.Method]; needed && !c.provider.advertised.has(capability) {
		return nil, fail(ctx, fault.MethodNotSupported(call.Method))
	}
	if term, err = c.check(call, request); err != nil {
		return nil, fail(ctx, err)
	}
	checks.Fit(request, c.provider.advertised.limits)
	return term, nil
}

func (c *core) check(call *Call, request any) (term context.Context, err error) {
	if c.provider.life.stop.Err() != nil && call.method.kind != word {
		return nil, fault.ShuttingDown()
	}
	if call.method.kind == mutation {
		if term, err = c.term(request); err != nil {
			return nil, err
		}
	}
	if err := checks.Shape(request, c.provider.advertised.limits); err != nil {
		return nil, err
	}
	return term, c.sets.Complete(request)
}

func (c *core) unary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	call, known := ctx.Value(callKey{}).(*Call)
	if !known || call.method.kind == always {
		return handler(ctx, request)
	}
	term, err := c.admit(ctx, call, request)
	if err != nil {
		return nil, err
	}
	handler = settled(handler)
	switch {
	case call.method.kind == mutation:
		handler = c.mutating.limit(ofItsObject(handler))
	case call.Service != cloudProviderService:
		handler = c.reading.limit(handler)
	}
	handler = c.gated(call, handler)
	if call.method.kind == mutation {
		return c.mutate(ctx, term, request, handler)
	}
	work, done := context.WithCancel(ctx)
	defer done()
	stop := context.AfterFunc(c.provider.life.giveUp, done)
	defer stop()
	return within(ctx, call, begin(work, request, handler))
}

// places are for calls that may run at once.
type places chan struct{}

// limit lets a method wait for a place, which it keeps until it returns or its context ends, whichever is first: one that hangs
// holds up no others for ever.
func (p places) limit(handler grpc.UnaryHandler) grpc.UnaryHandler {
	return func(ctx context.Context, request any) (any, error) {
		select {
		case p <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		free := sync.OnceFunc(func() { <-p })
		stop := context.AfterFunc(ctx, free)
		defer func() {
			stop()
			free()
		}()
		return handler(ctx, request)
	}
}

// settled ensures that the response of a batch contains each key exactly once, and logs which items failed.
func settled(handler grpc.UnaryHandler) grpc.UnaryHandler {
	return func(ctx context.Context, request any) (any, error) {
		answer, err := handler(ctx, request)
		if err == nil {
			failures := 0
			wrong := checks.Settle(request, answer, func(object string, failed *pb.ItemError) {
				if failures++; failures <= loggedItems {
					logItem(ctx, object, failed)
				}
			})
			if failures > loggedItems {
				Logger(ctx).Warn("more items of the batch failed", "items", failures-loggedItems)
			}
			if len(wrong) > 0 {
				Logger(ctx).Error("the response of a batch does not contain each key exactly once", "keys", wrong[:min(len(wrong), loggedItems)])
			}
		}
		return answer, err
	}
}

// gated asks the gate before it calls the method.
func (c *core) gated(call *Call, handler grpc.UnaryHandler) grpc.UnaryHandler {
	if c.provider.gate == nil || call.Service == cloudProviderService {
		return handler
	}
	return func(ctx context.Context, request any) (any, error) {
		if err := c.provider.gate(ctx, call.method.kind == mutation); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err // It was given up meanwhile.
		}
		return handler(ctx, request)
	}
}

// mutate runs a mutation. Once started it finishes, even if the caller disconnects, unless its term ends. It joins an
// identical running mutation, and is refused if another one works on one of its keys.
func (c *core) mutate(ctx, term context.Context, request any, handler grpc.UnaryHandler) (any, error) {
	call, _ := CallFrom(ctx)
	run, err := c.lanes.run(request.(proto.Message), c.revisions.Accept, func(left any, refused proto.Message) (context.Context, <-chan outcome, error) {
		if !c.provider.life.beginMutation() {
			return nil, nil, fault.ShuttingDown()
		}
		work, done := (&mandate{c.provider.life, term}).begin(ctx)
		return work, begin(work, left, func(work context.Context, left any) (any, error) {
			defer done()
			if left == nil {
				return refused, nil
			}
			answer, err := handler(work, left)
			if err == nil && refused != nil && !missing(answer) {
				proto.Merge(answer.(proto.Message), refused)
			}
			return answer, err
		}), nil
	})
	if err != nil {
		return nil, fail(ctx, err)
	}
	if term == nil {
		return within(ctx, &call, run.wait())
	}
	return within(ctx, &call, unlessOver(ctx, term, run.wait()))
}

// mandate is what a mutation runs under: the lifecycle that counts it, and its leader's term, nil if there is none.
type mandate struct {
	life *lifecycle
	term context.Context
}

type mandateKey struct{}

// begin returns the context of work that is already counted, and the function that ends it.
func (m *mandate) begin(ctx context.Context) (work context.Context, done context.CancelFunc) {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), mutationBound)
	end := m.ending(cancel)
	return context.WithValue(work, mandateKey{}, m), sync.OnceFunc(func() {
		end()
		m.life.endMutation()
	})
}

// ending has cancel called with the end of leadership, with a stop, or when end is called.
func (m *mandate) ending(cancel context.CancelFunc) (end context.CancelFunc) {
	stops := []func() bool{context.AfterFunc(m.life.giveUp, cancel)}
	if m.term != nil {
		stops = append(stops, context.AfterFunc(m.term, cancel))
	}
	return sync.OnceFunc(func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	})
}

// Outlive returns a context for work that continues after its mutation was answered with in_progress. A graceful stop
// waits for that work too. The context ends with leadership, at the contract's longest deadline, or when done is
// called, which is mandatory.
//
// Call it within the mutation. Outside one, as in a test that calls a method itself, nobody waits.
func Outlive(ctx context.Context) (work context.Context, done context.CancelFunc) {
	under, counted := ctx.Value(mandateKey{}).(*mandate)
	if !counted {
		return context.WithTimeout(context.WithoutCancel(ctx), mutationBound)
	}
	under.life.joinMutation()
	return under.begin(ctx)
}

// Lasting returns a context for what a mutation leaves running in the background after it has returned. It ends with leadership,
// with a stop, or when end is called, which is mandatory; nobody waits for it.
//
// Call it within the mutation. Outside one, as in a test that calls a method itself, it ends only when end is called.
func Lasting(ctx context.Context) (lasting context.Context, end context.CancelFunc) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	under, counted := ctx.Value(mandateKey{}).(*mandate)
	if !counted {
		return lasting, cancel
	}
	return lasting, under.ending(cancel)
}

// outcome is a method's response or error.
type outcome struct {
	answer any
	err    error
}

// begin runs a method in the background.
func begin(ctx context.Context, request any, handler grpc.UnaryHandler) <-chan outcome {
	ended := make(chan outcome, 1)
	go func() {
		var out outcome
		defer func() {
			if panicked := recover(); panicked != nil {
				out = outcome{err: fail(ctx, errPanic(panicked))}
			}
			ended <- out
		}()
		out.answer, out.err = handler(ctx, request)
		if out.err != nil {
			out.err = fail(ctx, out.err)
		} else if missing(out.answer) {
			out.err = fail(ctx, errors.New("the method returned nil without an error"))
		}
	}()
	return ended
}

// missing reports whether there is no response; an empty one is a response.
func missing(answer any) bool {
	message, is := answer.(proto.Message)
	return !is || !message.ProtoReflect().IsValid()
}

// within waits for a method, but no longer than its caller.
func within(ctx context.Context, call *Call, ended <-chan outcome) (any, error) {
	patience := make(<-chan time.Time)
	if left, bounded := call.Remaining(); bounded {
		timer := time.NewTimer(left - min(headstart, max(left/10, time.Millisecond)))
		defer timer.Stop()
		patience = timer.C
	}
	select {
	case out := <-ended:
		if out.err != nil && ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		return out.answer, out.err
	case <-patience:
		return nil, status.FromContextError(context.DeadlineExceeded).Err()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}
