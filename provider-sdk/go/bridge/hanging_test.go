package bridge_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/bridge"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// impatient shortens the time until items of a batch are late.
var impatient = bridge.WithPatience(100 * time.Millisecond)

// gate lets calls with some names hang until it opens, whatever their contexts say, and counts all calls.
type gate struct {
	mu    sync.Mutex
	calls map[string]int
	hang  map[string]bool
	open  chan struct{}
}

func hangingFor(t *testing.T, names ...string) *gate {
	g := &gate{calls: map[string]int{}, hang: map[string]bool{}, open: make(chan struct{})}
	for _, name := range names {
		g.hang[name] = true
	}
	t.Cleanup(g.release)
	return g
}

func (g *gate) pass(name string) {
	g.mu.Lock()
	g.calls[name]++
	hangs := g.hang[name]
	g.mu.Unlock()
	if hangs {
		<-g.open
	}
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

func (g *gate) called(name string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[name]
}

// updating serves this many Services, whose updates pass a gate, and returns the updates.
func (g *gate) updating(t *testing.T, services int, options ...bridge.Option) (pb.LoadBalancersClient, []*pb.LoadBalancerUpdate) {
	t.Helper()
	cloud := newer()
	cloud.update = func(_ context.Context, service *v1.Service, _ []*v1.Node) error {
		g.pass(string(service.UID))
		return nil
	}
	client := pb.NewLoadBalancersClient(serve(t, cloud, options...))
	var items []*pb.LoadBalancerUpdate
	for i := range services {
		uid := fmt.Sprint(i)
		if _, err := client.EnsureLoadBalancer(soon(t), ensureRequest(uid)); err != nil {
			t.Fatal(err)
		}
		items = append(items, &pb.LoadBalancerUpdate{Service: service(uid), DesiredDigest: "digest-2"})
	}
	return client, items
}

// S3: one of 20 updates hangs. The other 19 are done, once; the hanging one continues, and a later call gets its outcome.
func TestAnUpdateThatHangsCostsNoOther(t *testing.T) {
	gate := hangingFor(t, "7")
	client, items := gate.updating(t, 20, impatient)
	othersAreDone := func() bool {
		done := 0
		for uid, result := range update(t, client, soon(t), items...) {
			updated := result.GetOutcome() == pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED
			if updated == (result.GetInProgress().GetRetryAfter().AsDuration() > 0) || result.GetError() != nil || (updated && uid == "7") {
				t.Errorf("%s: %v", uid, result)
			}
			if updated {
				done++
			}
		}
		return done == 19
	}
	// What a busy machine does not begin at once, it does in a later call.
	eventually(t, othersAreDone)
	eventually(t, othersAreDone)
	gate.release()
	for end := time.Now().Add(patience); update(t, client, soon(t), items...)["7"].GetOutcome() != pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED; {
		if time.Now().After(end) {
			t.Fatal("never updated")
		}
	}
	for i := range 20 {
		if calls := gate.called(fmt.Sprint(i)); calls != 1 {
			t.Errorf("%d was updated %d times", i, calls)
		}
	}
}

// S3: hanging calls take every place of a batch; items that were not started are done by the next call.
func TestUpdatesThatHangTakeNoPlaceForEver(t *testing.T) {
	client, items := hangingFor(t, "0", "1").updating(t, 6, impatient, bridge.WithConcurrency(2))
	updated := 0
	for end := time.Now().Add(patience); updated < 4 && time.Now().Before(end); {
		answer := inTime(t, func(ctx context.Context) (*pb.BatchUpdateLoadBalancersResponse, error) {
			return client.BatchUpdateLoadBalancers(ctx, updateRequest(items...))
		})
		updated = 0
		for _, result := range answer.GetResults() {
			if result.GetOutcome() == pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED {
				updated++
			} else if result.GetInProgress() == nil {
				t.Error(result)
			}
		}
	}
	if updated != 4 {
		t.Errorf("%d of 4 were updated", updated)
	}
}

// S3: an Ensure or a Delete that outlasts its caller is in progress, and is not started again.
func TestAMutationThatHangsIsInProgress(t *testing.T) {
	gate := hangingFor(t, "ensure", "delete")
	cloud := newer()
	cloud.ensure = func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
		gate.pass("ensure")
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.9"}}}, nil
	}
	cloud.remove = func(context.Context, *v1.Service) error {
		gate.pass("delete")
		return nil
	}
	client := pb.NewLoadBalancersClient(serve(t, cloud))
	ensure := func(uid string) *pb.EnsureLoadBalancerResponse {
		return inTime(t, func(ctx context.Context) (*pb.EnsureLoadBalancerResponse, error) {
			return client.EnsureLoadBalancer(ctx, ensureRequest(uid))
		})
	}
	remove := func(uid string) *pb.DeleteLoadBalancerResponse {
		return inTime(t, func(ctx context.Context) (*pb.DeleteLoadBalancerResponse, error) {
			return client.DeleteLoadBalancer(ctx, deleteRequest(uid))
		})
	}
	for range 2 {
		if got := ensure("s"); got.GetInProgress() == nil || got.GetLoadBalancer().GetState() != pb.LoadBalancerState_LOAD_BALANCER_STATE_PENDING {
			t.Error(got)
		}
		if got := remove("other"); got.GetInProgress() == nil {
			t.Error(got)
		}
	}
	gate.release()
	if got := ensure("s"); got.GetInProgress() != nil || got.GetLoadBalancer().GetIngress()[0].GetIp() != "192.0.2.9" {
		t.Error(got)
	}
	if got := remove("other"); got.GetInProgress() != nil {
		t.Error(got)
	}
	if gate.called("ensure") != 1 || gate.called("delete") != 1 {
		t.Error(gate.called("ensure"), gate.called("delete"))
	}
}

// hangingRoutes lets the creation of routes hang, by destination.
type hangingRoutes struct {
	*cloud
	gate *gate
}

func (h hangingRoutes) Routes() (cloudprovider.Routes, bool) { return h, true }

func (h hangingRoutes) CreateRoute(ctx context.Context, cluster, hint string, route *cloudprovider.Route) error {
	h.gate.pass(route.DestinationCIDR)
	return h.cloud.CreateRoute(ctx, cluster, hint, route)
}

// S3: one hanging route delays neither its batch nor a later one.
func TestARouteThatHangsCostsNoOther(t *testing.T) {
	gate := hangingFor(t, "10.0.2.0/24")
	client := pb.NewRoutesClient(serve(t, hangingRoutes{routed(), gate}, impatient))
	// What a busy machine does not begin at once, it does in a later call.
	othersAreMade := func(items ...*pb.RouteToEnsure) {
		t.Helper()
		eventually(t, func() bool {
			made := 0
			for key, result := range ensureRoutes(t, client, items...) {
				if (result.GetInProgress() != nil) == (result.GetRoute() != nil) || (result.GetRoute() != nil && key == "2") {
					t.Error(key, result)
				}
				if result.GetRoute() != nil {
					made++
				}
			}
			return made == len(items)-1
		})
	}
	othersAreMade(item("1", "a", "10.0.1.0/24"), item("2", "b", "10.0.2.0/24"), item("3", "c", "10.0.3.0/24"))
	othersAreMade(item("2", "b", "10.0.2.0/24"), item("4", "d", "10.0.4.0/24"))
	// Its target is unknown while a call works on it, so nothing else is done to it.
	got := ensureRoutes(t, client, item("2", "d", "10.0.2.0/24"))
	if got["2"].GetInProgress() == nil {
		t.Error(got)
	}
	gate.release()
	for end := time.Now().Add(patience); got["2"].GetRoute().GetTarget().GetName() != "b"; {
		if got = ensureRoutes(t, client, item("2", "b", "10.0.2.0/24")); time.Now().After(end) {
			t.Fatal(got)
		}
	}
	if calls := gate.called("10.0.2.0/24"); calls != 1 {
		t.Errorf("made %d times", calls)
	}
}
