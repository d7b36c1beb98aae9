package sdk

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestAStopWaitsForItsLeaderOnlyBriefly(t *testing.T) {
	const long = time.Minute
	for name, row := range map[string]struct {
		leads time.Duration
		then  func(hear func(cluster string, validFor time.Duration), life *lifecycle)
		want  time.Duration
	}{
		"nobody leads":                {0, nil, 0},
		"the leader says nothing":     {long, nil, stepDownWithin},
		"its term ends":               {time.Second, nil, time.Second},
		"it renews and steps down":    {long, func(hear func(string, time.Duration), _ *lifecycle) { hear("c", long); hear("c", 0) }, time.Second},
		"it leads another cluster":    {long, func(hear func(string, time.Duration), _ *lifecycle) { hear("d", long); hear("c", 0) }, stepDownWithin},
		"the grace period is over":    {long, func(_ func(string, time.Duration), life *lifecycle) { life.giveUpNow() }, time.Second},
		"it stepped down long before": {-long, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core := &core{provider: &Provider{life: newLifecycle(nil)}}
				hear := func(cluster string, validFor time.Duration) {
					if _, err := core.leadership.Hear(cluster, &pb.Fencing{Scope: "lease", Epoch: 1}, &validFor); err != nil {
						t.Error(err)
					}
				}
				if row.leads != 0 {
					hear("c", row.leads)
				}
				if row.then != nil {
					time.AfterFunc(time.Second, func() { row.then(hear, core.provider.life) })
				}
				began := time.Now()
				core.farewell()
				if lasted := time.Since(began); lasted != row.want {
					t.Errorf("it waited %v, not %v", lasted, row.want)
				}
			})
		})
	}
}

// A panic of background work ends neither the process nor the work of the rest of its term.
func TestBackgroundWorkThatPanickedStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lasts = 5 * time.Minute
		var starts []int
		began, text := time.Now(), &bytes.Buffer{}
		core := &core{provider: &Provider{life: newLifecycle(nil), log: slog.New(slog.NewTextHandler(text, nil)), whileLeading: func(context.Context, *pb.ClusterRef) {
			starts = append(starts, int(time.Since(began).Seconds()))
			panic("no such disk")
		}}}
		request := &pb.LeadRequest{Cluster: &pb.ClusterRef{Uid: "c"}, Fencing: &pb.Fencing{Scope: "lease", Epoch: 1}, ValidFor: durationpb.New(lasts)}
		if _, err := core.hear(request); err != nil {
			t.Fatal(err)
		}
		<-core.returned["c"]
		// The last pause ends with the term.
		if lasted := time.Since(began); !slices.Equal(starts, []int{0, 1, 3, 7, 15, 31, 63, 123, 183, 243}) || lasted != lasts {
			t.Errorf("it started after %v seconds and was over after %v", starts, lasted)
		}
		if log := text.String(); strings.Count(log, "no such disk") != len(starts) || !strings.Contains(log, "terms_test.go") {
			t.Error(log)
		}
	})
}

// D16: work that a mutation leaves behind may begin when the mutation has ended and a stop waits for nothing any more.
func TestWorkThatBeginsAfterTheLastMutationOfAStop(t *testing.T) {
	life := newLifecycle(nil)
	life.beginMutation()
	life.beginStop()
	life.endMutation()
	life.joinMutation()
	life.endMutation()
	<-life.idle
}
