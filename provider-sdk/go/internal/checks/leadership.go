package checks

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// Leadership records which host leads which cluster, by cluster uid, according to Lead.
type Leadership struct {
	mu      sync.Mutex
	offices map[string]*office
}

// office holds the leaders of one cluster.
type office struct {
	// scope and epoch are those of the latest leader.
	scope string
	epoch uint64
	term  *term
	// former are Leases that another Lease has replaced: their leaders never come back.
	former map[string]bool
}

// term is how long a leader leads: until its context is done.
type term struct {
	context.Context
	cancel context.CancelCauseFunc
	// until is the term's end by the monotonic clock; zero if it lasts until somebody else leads.
	until time.Time
	timer *time.Timer
}

// Hear records a call of Lead; without validFor the caller leads until another host does. If a new term begins, Hear
// returns its context, which is done when the term ends; a renewal continues the current one.
func (l *Leadership) Hear(cluster string, leader *pb.Fencing, validFor *time.Duration) (context.Context, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.offices[cluster]
	switch {
	case of == nil:
		of = &office{former: map[string]bool{}}
		if l.offices == nil {
			l.offices = map[string]*office{}
		}
		l.offices[cluster] = of
	case of.former[leader.GetScope()], of.scope == leader.GetScope() && leader.GetEpoch() < of.epoch,
		// Probably a host that was started without leader election by mistake.
		leader.GetScope() == "" && of.scope != "" && !of.term.over():
		return nil, of.stale(leader)
	case of.heldBy(leader) && !of.term.over():
		l.extend(of.term, leader, validFor)
		return nil, nil
	default:
		of.term.cancel(stale(of.leader(), fmt.Sprintf("epoch %d of lease %q took over", leader.GetEpoch(), leader.GetScope())))
		if of.scope != leader.GetScope() && of.scope != "" {
			of.former[of.scope] = true
		}
	}
	of.scope, of.epoch, of.term = leader.GetScope(), leader.GetEpoch(), &term{}
	of.term.Context, of.term.cancel = context.WithCancelCause(context.Background())
	l.extend(of.term, leader, validFor)
	if of.term.Err() != nil {
		return nil, nil
	}
	return of.term, nil
}

// extend sets when a term ends. The caller holds the lock.
func (l *Leadership) extend(of *term, leader *pb.Fencing, validFor *time.Duration) {
	if of.timer != nil {
		of.timer.Stop()
	}
	of.until, of.timer = time.Time{}, nil
	switch {
	case validFor == nil:
	case *validFor <= 0:
		of.cancel(stale(leader, "it stepped down"))
	default:
		of.until = time.Now().Add(*validFor)
		of.timer = time.AfterFunc(*validFor, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			// A renewal may have come first.
			if of.over() {
				of.cancel(stale(leader, "its time is over"))
			}
		})
	}
}

// Term returns the context of the term under which a mutation runs, or its refusal; nil while leader election is off
// and nobody has ever led.
func (l *Leadership) Term(cluster string, caller *pb.Fencing) (context.Context, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.offices[cluster]
	switch {
	case of == nil && caller.GetEpoch() == 0:
		return nil, nil
	case of == nil:
		return nil, stale(caller, "nobody has led yet")
	case of.heldBy(caller) && !of.term.over():
		return of.term, nil
	default:
		return nil, of.stale(caller)
	}
}

// Current returns the context of a term that lasts, of any cluster; nil if nobody leads.
func (l *Leadership) Current() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.offices {
		if !of.term.over() {
			return of.term
		}
	}
	return nil
}

func (o *office) heldBy(caller *pb.Fencing) bool {
	return o.scope == caller.GetScope() && o.epoch == caller.GetEpoch()
}

func (o *office) stale(caller *pb.Fencing) error {
	now := "nobody does"
	if !o.term.over() {
		now = fmt.Sprintf("epoch %d of lease %q does", o.epoch, o.scope)
	}
	return stale(caller, now, fault.WithMetadata("leader", strconv.FormatUint(o.epoch, 10)))
}

func (o *office) leader() *pb.Fencing { return &pb.Fencing{Scope: o.scope, Epoch: o.epoch} }

// over also checks the clock: in a process that was paused, the timer may not have fired yet.
func (t *term) over() bool {
	return t.Err() != nil || !t.until.IsZero() && !time.Now().Before(t.until)
}

func stale(caller *pb.Fencing, why string, more ...fault.Option) error {
	return fault.New(pb.ErrorReason_ERROR_REASON_STALE_LEADER,
		fmt.Sprintf("epoch %d of lease %q does not lead: %s", caller.GetEpoch(), caller.GetScope(), why),
		append(more, fault.WithMetadata("epoch", strconv.FormatUint(caller.GetEpoch(), 10)))...)
}
