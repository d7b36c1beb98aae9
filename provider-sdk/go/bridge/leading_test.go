package bridge_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/bridge"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

func lead(t *testing.T, conn *grpc.ClientConn, leader *pb.Fencing, validFor *durationpb.Duration) {
	t.Helper()
	request := &pb.LeadRequest{Cluster: clusterRef(), Fencing: leader, ValidFor: validFor}
	if _, err := pb.NewCloudProviderClient(conn).Lead(soon(t), request, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
}

func leader(epoch uint64) *pb.Fencing { return &pb.Fencing{Scope: "lease", Epoch: epoch} }

var (
	long = durationpb.New(600 * time.Second)
	zero = durationpb.New(0)
)

// writers are the loops that write to a cloud.
type writers struct {
	mu      sync.Mutex
	running map[string]bool
	most    int
}

func (w *writers) now() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.running))
}

// until waits for exactly these writers.
func (w *writers) until(t *testing.T, wanted ...string) {
	t.Helper()
	eventually(t, func() bool { return slices.Equal(w.now(), wanted) })
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never came")
		}
	}
}

// looping is a provider whose Initialize starts a writing loop.
type looping struct {
	*cloud
	name   string
	of     *writers
	panics bool
}

func (l *looping) Initialize(_ cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	if l.panics {
		panic("no clients")
	}
	go func() {
		l.of.mu.Lock()
		l.of.running[l.name] = true
		l.of.most = max(l.of.most, len(l.of.running))
		l.of.mu.Unlock()
		<-stop
		l.of.mu.Lock()
		delete(l.of.running, l.name)
		l.of.mu.Unlock()
	}()
}

// copies is a provider whose parts have the clients that it has when it is asked for them: openstack's balancers and hcloud's
// instances are such copies.
type copies struct {
	*cloud
	initialized bool
}

func (c *copies) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {
	c.initialized = true
}

func (c *copies) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	return c.copy(), true
}

func (c *copies) InstancesV2() (cloudprovider.InstancesV2, bool) {
	return c.copy(), true
}

func (c *copies) copy() *cloud {
	part, hasClient := newer(), c.initialized
	use := func() {
		if !hasClient {
			panic("the copy has no client")
		}
	}
	part.exists = func(context.Context, *v1.Node) (bool, error) {
		use()
		return true, nil
	}
	part.ensure = func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
		use()
		return &v1.LoadBalancerStatus{}, nil
	}
	return part
}

func TestTheProvidersPartsAreThoseThatItHasOnceItIsInitialized(t *testing.T) {
	conn := serve(t, &copies{cloud: newer()}, bridge.WithInitializeAtStart(false), bridge.WithExit(func(error) {}))
	lead(t, conn, leader(1), long)
	request := requestNamed("1", "web")
	request.Fencing = leader(1)
	if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err != nil {
		t.Error(err)
	}
	answer, err := pb.NewInstancesClient(conn).BatchGetInstances(soon(t), &pb.BatchGetInstancesRequest{
		Cluster: clusterRef(), Queries: []*pb.InstanceQuery{{Key: "a", Node: &pb.NodeRef{Name: "a", ProviderId: "fake://a"}}},
	})
	if err != nil || answer.GetResults()[0].GetError() != nil {
		t.Error(answer, err)
	}
}

// replica is a bridge that initializes its provider when it is led.
type replica struct {
	*looping
	conn   *grpc.ClientConn
	exited chan error
}

func newReplica(t *testing.T, name string, of *writers, with func(*looping)) *replica {
	t.Helper()
	out := &replica{looping: &looping{cloud: newer(), name: name, of: of}, exited: make(chan error, 1)}
	if with != nil {
		with(out.looping)
	}
	out.conn = serve(t, out.looping, bridge.WithInitializeAtStart(false), bridge.WithExit(func(err error) { out.exited <- err }))
	return out
}

func (r *replica) hasExited(t *testing.T, why string) {
	t.Helper()
	select {
	case err := <-r.exited:
		if !strings.Contains(err.Error(), why) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("the process goes on")
	}
}

func (r *replica) read(t *testing.T) error {
	t.Helper()
	_, err := pb.NewInstancesClient(r.conn).BatchGetInstances(soon(t), &pb.BatchGetInstancesRequest{
		Cluster: clusterRef(), Queries: []*pb.InstanceQuery{{Key: "a", Node: &pb.NodeRef{Name: "a", ProviderId: "fake://a"}}},
	})
	return err
}

func (r *replica) status(t *testing.T) string {
	t.Helper()
	answer, err := pb.NewCloudProviderClient(r.conn).GetStatus(soon(t), &pb.GetStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, condition := range answer.GetConditions() {
		return condition.GetReason()
	}
	return ""
}

// waits checks that the replica answers from memory what it can, and nothing else.
func (r *replica) waits(t *testing.T) {
	t.Helper()
	err := r.read(t)
	expect(t, err, codes.Unavailable, pb.ErrorReason_ERROR_REASON_RETRY_LATER)
	if found, _ := fault.FromStatus(err); found.RetryAfter() != time.Second {
		t.Error(found)
	}
	if got := r.status(t); got != "NotLed" {
		t.Error(got)
	}
}

// V1: a vendor's loop runs on exactly one of two replicas, whichever leads.
func TestBackgroundWorkRunsOnExactlyOneReplica(t *testing.T) {
	of := &writers{running: map[string]bool{}}
	a, b := newReplica(t, "a", of, nil), newReplica(t, "b", of, nil)
	a.waits(t)
	b.waits(t)
	of.until(t)

	lead(t, a.conn, leader(1), long)
	of.until(t, "a")
	eventually(t, func() bool { return a.read(t) == nil })
	b.waits(t)
	if got := a.status(t); got == "NotLed" {
		t.Error(got)
	}

	lead(t, a.conn, leader(1), zero)
	of.until(t)
	a.hasExited(t, "it stepped down")

	lead(t, b.conn, leader(2), long)
	of.until(t, "b")
	lead(t, b.conn, leader(2), durationpb.New(200*time.Millisecond))
	of.until(t)
	b.hasExited(t, "its time is over")

	a = newReplica(t, "a, started again", of, nil)
	lead(t, a.conn, leader(3), long)
	of.until(t, "a, started again")
	lead(t, a.conn, leader(4), long)
	of.until(t)
	a.hasExited(t, "took over")
	if of.most != 1 {
		t.Errorf("%d wrote at once", of.most)
	}
}

func TestWithoutLeaderElectionAMutationOrLeadInitializes(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, *replica){
		"lead": func(t *testing.T, r *replica) { lead(t, r.conn, &pb.Fencing{}, nil) },
		"mutation": func(t *testing.T, r *replica) {
			if err := ensure(t, r.conn, "web"); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			of := &writers{running: map[string]bool{}}
			one := newReplica(t, "a", of, nil)
			begin(t, one)
			of.until(t, "a")
			eventually(t, func() bool { return one.read(t) == nil })
		})
	}
}

// V4: a provider's call is abandoned when leadership ends.
func TestAProvidersCallIsGivenUpWhenLeadershipEnds(t *testing.T) {
	begun, ended, answered := make(chan bool, 1), make(chan error, 1), make(chan error, 1)
	one := newReplica(t, "a", &writers{running: map[string]bool{}}, func(l *looping) {
		l.ensure = func(ctx context.Context, _ *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
			begun <- true
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		}
	})
	lead(t, one.conn, leader(1), long)
	request := ensureRequest("web")
	request.Fencing = leader(1)
	go func() {
		_, err := pb.NewLoadBalancersClient(one.conn).EnsureLoadBalancer(soon(t), request)
		answered <- err
	}()
	<-begun
	lead(t, one.conn, leader(1), zero)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	expect(t, <-answered, codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_STALE_LEADER)
	one.hasExited(t, "it stepped down")
}

// lingering answers when its context ends, which it does not mind.
type lingering struct {
	*cloud
	looked chan bool
}

func (l *lingering) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return l, true }

func (l *lingering) GetLoadBalancer(ctx context.Context, _ string, _ *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	l.looked <- true
	<-ctx.Done()
	return &v1.LoadBalancerStatus{}, true, nil
}

// [R:lead-ends] A provider that never looks at its context would change what the next leader's works on.
func TestNoChangeBeginsOnceTheTermHasEnded(t *testing.T) {
	cloud, updates := &lingering{newer(), make(chan bool, 1)}, new(atomic.Int32)
	cloud.update = func(context.Context, *v1.Service, []*v1.Node) error {
		updates.Add(1)
		return nil
	}
	// After the stop, which waits for what runs.
	t.Cleanup(func() {
		if updates.Load() != 0 {
			t.Error("an update began")
		}
	})
	conn := serve(t, cloud, bridge.WithInitializeAtStart(false), bridge.WithExit(func(error) {}))
	lead(t, conn, leader(1), long)
	request := updateRequest(&pb.LoadBalancerUpdate{Service: service("web"), DesiredDigest: "digest"})
	request.Fencing = leader(1)
	answered := make(chan error, 1)
	go func() {
		_, err := pb.NewLoadBalancersClient(conn).BatchUpdateLoadBalancers(soon(t), request)
		answered <- err
	}()
	<-cloud.looked
	lead(t, conn, leader(1), zero)
	expect(t, <-answered, codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_STALE_LEADER)
}

// The next leader's call comes sooner than the process ends, which would leave half of a balancer behind.
func TestNothingBeginsInAProcessThatEnds(t *testing.T) {
	begun := make(chan bool, 1)
	one := newReplica(t, "a", &writers{running: map[string]bool{}}, func(l *looping) {
		l.ensure = func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
			begun <- true
			return &v1.LoadBalancerStatus{}, nil
		}
	})
	lead(t, one.conn, leader(1), long)
	one.of.until(t, "a")
	lead(t, one.conn, leader(2), long)
	one.hasExited(t, "took over")
	request := ensureRequest("web")
	request.Fencing = leader(2)
	_, err := pb.NewLoadBalancersClient(one.conn).EnsureLoadBalancer(soon(t), request)
	expect(t, err, codes.Unavailable, pb.ErrorReason_ERROR_REASON_RETRY_LATER)
	expect(t, one.read(t), codes.Unavailable, pb.ErrorReason_ERROR_REASON_RETRY_LATER)
	if len(begun) != 0 {
		t.Error("an Ensure began")
	}
}

func TestAProviderThatCannotBeInitializedEndsTheProcess(t *testing.T) {
	of := &writers{running: map[string]bool{}}
	one := newReplica(t, "a", of, func(l *looping) { l.panics = true })
	lead(t, one.conn, leader(1), long)
	one.hasExited(t, "cannot be initialized")
	one.waits(t)
}

// The process exits with its code and one log line.
func TestTheProcessEndsWithLeadership(t *testing.T) {
	folder, err := os.MkdirTemp("", "bridge")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	path := filepath.Join(folder, "p.sock")
	process := exec.Command(os.Args[0], "-test.run=^TestServeAReplica$")
	process.Env = append(os.Environ(), "REPLICA_SOCKET="+path)
	var printed bytes.Buffer
	process.Stderr = &printed
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lead(t, conn, leader(1), long)
	// The process may end sooner than this is answered; if it is not heard, the process does not end with 1.
	stepDown := &pb.LeadRequest{Cluster: clusterRef(), Fencing: leader(1), ValidFor: zero}
	_, _ = pb.NewCloudProviderClient(conn).Lead(soon(t), stepDown)
	_ = process.Wait()
	if code := process.ProcessState.ExitCode(); code != 1 {
		t.Errorf("it ended with %d: %s", code, &printed)
	}
	if strings.Count(printed.String(), "leadership ended") != 1 {
		t.Errorf("it said %s", &printed)
	}
}

// The process of the test above, not a test of its own.
func TestServeAReplica(t *testing.T) {
	path := os.Getenv("REPLICA_SOCKET")
	if path == "" {
		t.Skip("no REPLICA_SOCKET")
	}
	quiet := sdk.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	one := &looping{cloud: newer(), of: &writers{running: map[string]bool{}}}
	provider, err := bridge.New(one, bridge.WithSDKOptions(quiet))
	if err != nil {
		t.Fatal(err)
	}
	if err := sdk.Serve(soon(t), provider, sdk.WithEndpoint(path)); err != nil {
		t.Fatal(err)
	}
}
