package sdk

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"cloudprovider.ccm/sdk/internal/checks"
	"google.golang.org/protobuf/types/known/durationpb"
)

// shortestPause and longestPause bound the pause before background work that panicked starts again; it doubles each time.
const (
	shortestPause = time.Second
	longestPause  = time.Minute
)

// WithoutLeadership runs mutations of anybody: CAPABILITY_LEADERSHIP is not advertised. For tests of hosts, and for a
// provider with better means of its own.
func WithoutLeadership() Option {
	return func(p *Provider) { p.leaderless = true }
}

// WithWhileLeading runs background work that writes to the cloud, for each cluster while a host leads it. The work
// starts with each term, once the previous term's has returned. Its context is done when the term ends or the process
// stops, which context.Cause distinguishes (fault.ReasonOf: STALE_LEADER or SHUTTING_DOWN). A graceful stop waits for
// its return. If it returns at once, exactly one of two replicas runs it at any time. A term that ends before its work could
// start runs it too, so that the work sees the end of each term. After a panic, which is logged, it starts again while
// the term lasts.
func WithWhileLeading(work func(ctx context.Context, cluster *pb.ClusterRef)) Option {
	return func(p *Provider) { p.whileLeading = work }
}

// leaders records who leads, and the background work of each term.
type leaders struct {
	leadership checks.Leadership
	mu         sync.Mutex
	// returned is closed when the work of a cluster's latest term has returned; by the cluster's uid.
	returned map[string]<-chan struct{}
}

// term returns the term under which a mutation runs, nil if there is none; or its refusal, if the host is not the
// current leader.
func (c *core) term(request any) (context.Context, error) {
	fencing, cluster := checks.Fencing(request), checks.Cluster(request)
	if fencing == nil || cluster.GetUid() == "" || !c.provider.advertised.has(pb.Capability_CAPABILITY_LEADERSHIP) {
		return nil, nil // The shape check refuses missing fields, without which nobody can say who leads.
	}
	return c.leadership.Term(cluster.GetUid(), fencing)
}

// processStart is the zero of the clock that leaders are told of.
var processStart = time.Now()

// hear handles Lead. The provider's background work starts and ends with the term.
func (c *core) hear(request *pb.LeadRequest) (*pb.LeadResponse, error) {
	heardAt := time.Since(processStart)
	answer := &pb.LeadResponse{HeardAt: durationpb.New(heardAt)}
	var validFor *time.Duration
	if given := request.GetValidFor(); given != nil {
		left := given.AsDuration()
		if until := request.GetValidUntil(); until != nil && left > 0 {
			left = until.AsDuration() - heardAt
		}
		validFor = &left
	}
	term, err := c.leadership.Hear(request.GetCluster().GetUid(), request.GetFencing(), validFor)
	if err != nil {
		return nil, err
	}
	if term == nil || c.provider.whileLeading == nil || !c.provider.life.beginMutation() {
		return answer, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	uid, returned := request.GetCluster().GetUid(), make(chan struct{})
	before := c.returned[uid]
	if c.returned == nil {
		c.returned = map[string]<-chan struct{}{}
	}
	c.returned[uid] = returned
	go c.whileLed(term, request.GetCluster(), before, returned)
	return answer, nil
}

func (c *core) whileLed(term context.Context, cluster *pb.ClusterRef, before <-chan struct{}, returned chan<- struct{}) {
	defer c.provider.life.endMutation()
	defer close(returned)
	work, done := context.WithCancelCause(term)
	defer done(nil)
	defer context.AfterFunc(c.provider.life.stop, func() { done(fault.ShuttingDown()) })()
	if before != nil {
		<-before
	}
	for pause := shortestPause; c.panicked(work, cluster, pause); pause = min(2*pause, longestPause) {
		select {
		case <-time.After(pause):
		case <-work.Done():
			return
		}
	}
}

// panicked runs the background work and reports whether it panicked: it must neither end the process, in which mutations
// run, nor stay away for the rest of a term, which may last for months.
func (c *core) panicked(work context.Context, cluster *pb.ClusterRef, pause time.Duration) (panicked bool) {
	defer func() {
		if why := recover(); why != nil {
			panicked = true
			c.provider.log.Error("the background work panicked; it starts again if its term lasts", "cluster_uid", cluster.GetUid(),
				"pause", pause, "panic", fmt.Sprint(why), "stack", string(debug.Stack()))
		}
	}()
	c.provider.whileLeading(work, cluster)
	return false
}

// farewell waits until no host leads, for a limited time: a host steps down once its last mutation has ended, and hears
// whether that was understood before it lets another one lead.
func (c *core) farewell() {
	within, done := context.WithTimeout(c.provider.life.giveUp, stepDownWithin)
	defer done()
	for term := c.leadership.Current(); term != nil && within.Err() == nil; term = c.leadership.Current() {
		select {
		case <-term.Done():
		case <-within.Done():
		}
	}
}

// unlessOver returns a mutation's outcome or, once its term is over, STALE_LEADER: its own outcome then only shows how
// it was abandoned.
func unlessOver(ctx, term context.Context, ended <-chan outcome) <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		var end outcome
		select {
		case end = <-ended:
		case <-term.Done():
		}
		if term.Err() != nil {
			end = outcome{err: fail(ctx, context.Cause(term))}
		}
		out <- end
	}()
	return out
}
