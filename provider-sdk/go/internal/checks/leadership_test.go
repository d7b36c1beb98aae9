package checks

import (
	"cmp"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

const long = 10 * time.Second

// bench is a Leadership with the clock of a test.
type bench struct {
	*testing.T
	Leadership
}

func atBench(t *testing.T, run func(*bench)) {
	synctest.Test(t, func(t *testing.T) { run(&bench{T: t}) })
}

func leader(scope string, epoch uint64) *pb.Fencing {
	return &pb.Fencing{Scope: scope, Epoch: epoch}
}

func (b *bench) hear(leader *pb.Fencing, validFor time.Duration) context.Context {
	b.Helper()
	begun, err := b.Hear("c", leader, &validFor)
	if err != nil {
		b.Fatalf("%v is not heard: %v", leader, err)
	}
	return begun
}

func (b *bench) isStale(what string, err error) {
	b.Helper()
	if fault.ReasonOf(err) != pb.ErrorReason_ERROR_REASON_STALE_LEADER {
		b.Errorf("%s: got %v", what, err)
	}
}

func (b *bench) mayNot(what string, callers ...*pb.Fencing) {
	b.Helper()
	for _, caller := range callers {
		_, err := b.Term("c", caller)
		b.isStale(what, err)
	}
}

func TestWhoLeadsIsToldAsInEverySDK(t *testing.T) {
	type caller struct {
		Scope string
		Epoch unsigned
	}
	atBench(t, func(b *bench) {
		start := time.Now()
		for i, row := range vectors[struct {
			At           int
			Cluster      string
			Lead, Mutate *caller
			ValidFor     *int `json:"valid_for"`
			Refused      bool
		}](t, "leadership.json") {
			time.Sleep(time.Duration(row.At)*time.Second - time.Since(start))
			cluster := cmp.Or(row.Cluster, "c-1")
			var err error
			if who := row.Mutate; who != nil {
				_, err = b.Term(cluster, leader(who.Scope, uint64(who.Epoch)))
			} else {
				var validFor *time.Duration
				if row.ValidFor != nil {
					left := time.Duration(*row.ValidFor) * time.Second
					validFor = &left
				}
				_, err = b.Hear(cluster, leader(row.Lead.Scope, uint64(row.Lead.Epoch)), validFor)
			}
			if stale := fault.ReasonOf(err) == pb.ErrorReason_ERROR_REASON_STALE_LEADER; stale != row.Refused {
				t.Errorf("row %d: %v", i, err)
			}
		}
	})
}

// [R:lead-needed]
func TestOnlyThePresentLeaderMayChangeAnything(t *testing.T) {
	atBench(t, func(b *bench) {
		if term, err := b.Term("c", leader("", 0)); term != nil || err != nil {
			b.Error("leader election is off", err)
		}
		b.mayNot("nobody led yet", leader("lease", 1))
		b.hear(leader("lease", 1), long)
		if term, err := b.Term("c", leader("lease", 1)); term == nil || err != nil {
			b.Error("the leader is refused", err)
		}
		b.mayNot("somebody else", leader("", 0), leader("lease", 0), leader("lease", 2), leader("other", 1))
		if _, err := b.Term("d", leader("", 0)); err != nil {
			b.Error("another cluster", err)
		}
		time.Sleep(long + time.Second)
		b.mayNot("nobody leads any more", leader("lease", 1), leader("", 0))
	})
}

// [R:lead-takes-over]
func TestAFormerLeaderNeverComesBack(t *testing.T) {
	atBench(t, func(b *bench) {
		first := b.hear(leader("lease", 1), long)
		second := b.hear(leader("lease", 2), long)
		_, err := b.Hear("c", leader("", 0), nil)
		b.isStale("it was not elected", err)
		if first.Err() == nil {
			b.Error("the first one leads still")
		}
		patience := long
		_, err = b.Hear("c", leader("lease", 1), &patience)
		b.isStale("a lower epoch", err)
		if b.hear(leader("lease", 2), long) != nil {
			b.Error("it was begun anew, not renewed")
		}
		b.hear(leader("new lease", 1), long)
		if second.Err() == nil {
			b.Error("the second one leads still")
		}
		_, err = b.Hear("c", leader("lease", 3), &patience)
		b.isStale("a former lease", err)
	})
}

// [R:lead-ends]
func TestATermEndsInTimeOrAtAWordAndIsRenewed(t *testing.T) {
	atBench(t, func(b *bench) {
		start := time.Now()
		term := b.hear(leader("lease", 1), long)
		time.Sleep(6 * time.Second)
		b.hear(leader("lease", 1), long)
		<-term.Done()
		if lasted := time.Since(start); lasted != 16*time.Second {
			b.Errorf("it lasted %v", lasted)
		}
		again := b.hear(leader("lease", 1), long)
		if b.hear(leader("lease", 1), 0) != nil || again.Err() == nil {
			b.Error("stepping down is not heard")
		}
		b.isStale("its end", context.Cause(again))
		b.mayNot("it stepped down", leader("lease", 1))
	})
}

// [R:lead-ends]
func TestWithoutLeaderElectionATermEndsWhenSomebodyElseLeads(t *testing.T) {
	atBench(t, func(b *bench) {
		open, err := b.Hear("c", leader("", 0), nil)
		if err != nil {
			b.Fatal(err)
		}
		time.Sleep(1000 * time.Hour)
		if term, err := b.Term("c", leader("", 0)); term == nil || err != nil {
			b.Error(term, err)
		}
		b.hear(leader("lease", 1), long)
		if open.Err() == nil {
			b.Error("two lead")
		}
		b.mayNot("it was taken over", leader("", 0))
	})
}

// A host that steps down after another leader's renewal, or before anybody led, starts no term.
func TestNothingBeginsWithAStepDown(t *testing.T) {
	atBench(t, func(b *bench) {
		if b.hear(leader("lease", 1), -long) != nil {
			b.Error("a term begins with its end")
		}
		b.mayNot("it stepped down before it led", leader("lease", 1))
	})
}
