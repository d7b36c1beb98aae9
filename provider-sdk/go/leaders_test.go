package sdk_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"cloudprovider.ccm/sdk"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
)

func lead(t *testing.T, conn *grpc.ClientConn, epoch uint64, validFor *durationpb.Duration) {
	t.Helper()
	_, err := pb.NewCloudProviderClient(conn).Lead(soon(t), &pb.LeadRequest{
		Cluster: clusterRef(), Fencing: &pb.Fencing{Scope: "lease", Epoch: epoch}, ValidFor: validFor,
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	long = durationpb.New(600 * time.Second)
	zero = durationpb.New(0)
)

// waysToEnd are the ways in which leadership ends: how it starts, and what ends it.
var waysToEnd = []struct {
	how   string
	first *durationpb.Duration
	epoch uint64
	then  *durationpb.Duration
}{
	{"time", durationpb.New(300 * time.Millisecond), 0, nil},
	{"stepping down", long, 1, zero},
	{"a new leader", long, 2, long},
}

// A call that is read late, as by a process that stood still, does not count from then. [R:lead-ends]
func TestLeadershipEndsByTheProvidersClock(t *testing.T) {
	conn := serve(t, provider(t, &cloud{ensure: func(context.Context, *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
		return &pb.EnsureLoadBalancerResponse{}, nil
	}})).dial(t)
	leadUntil := func(until *durationpb.Duration) time.Duration {
		answer, err := pb.NewCloudProviderClient(conn).Lead(soon(t), &pb.LeadRequest{
			Cluster: clusterRef(), Fencing: &pb.Fencing{Scope: "lease", Epoch: 1}, ValidFor: long, ValidUntil: until,
		})
		if err != nil || answer.GetHeardAt() == nil {
			t.Fatal(answer, err)
		}
		return answer.GetHeardAt().AsDuration()
	}
	change := func() error {
		return <-ensureLed(t, conn)
	}
	clock := leadUntil(nil)
	later := leadUntil(durationpb.New(clock + 600*time.Second))
	if err := change(); err != nil || later < clock {
		t.Fatal(err, clock, later)
	}
	leadUntil(durationpb.New(later))
	expect(t, change(), codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_STALE_LEADER)
}

// ensureLed begins an Ensure in the name of the first leader.
func ensureLed(t *testing.T, conn *grpc.ClientConn) chan error {
	answered := make(chan error, 1)
	request := ensureRequest()
	request.Fencing = &pb.Fencing{Scope: "lease", Epoch: 1}
	go func() {
		_, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request)
		answered <- err
	}()
	return answered
}

// ensureWhileLed begins an Ensure within the first leader's term: one that lasts so long, or longer each time that a busy machine
// let it end before.
func ensureWhileLed(t *testing.T, conn *grpc.ClientConn, validFor time.Duration, begun <-chan bool) chan error {
	t.Helper()
	for ; ; validFor *= 4 {
		lead(t, conn, 1, durationpb.New(validFor))
		answered := ensureLed(t, conn)
		select {
		case <-begun:
			return answered
		case err := <-answered:
			// The answer may come although it has begun.
			answered <- err
			if len(begun) > 0 {
				<-begun
				return answered
			}
			if validFor > patience {
				t.Fatal(err)
			}
		}
	}
}

// [R:lead-ends]
func TestAMutationIsGivenUpWhenLeadershipEnds(t *testing.T) {
	for _, row := range waysToEnd {
		t.Run(row.how, func(t *testing.T) {
			begun, ended := make(chan bool, 1), make(chan error, 1)
			cloud := &cloud{ensure: func(ctx context.Context, _ *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
				begun <- true
				<-ctx.Done()
				ended <- ctx.Err()
				return &pb.EnsureLoadBalancerResponse{}, nil // Its outcome no longer matters.
			}}
			conn := serve(t, provider(t, cloud)).dial(t)
			answered := ensureWhileLed(t, conn, row.first.AsDuration(), begun)
			if row.then != nil {
				lead(t, conn, row.epoch, row.then)
			}
			receive(t, ended, "its end")
			err := receive(t, answered, "the answer")
			expect(t, err, codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_STALE_LEADER)
		})
	}
}

// A method that ignores its context delays no answer, and the work that it left behind ends too. [R:lead-ends]
func TestWhatOutlivesItsMutationEndsWithLeadership(t *testing.T) {
	begun, ended := make(chan bool, 1), make(chan error, 1)
	release := make(chan struct{})
	cloud := &cloud{ensure: func(ctx context.Context, _ *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
		work, done := sdk.Outlive(ctx)
		go func() {
			defer done()
			<-work.Done()
			ended <- work.Err()
		}()
		begun <- true
		<-release
		return &pb.EnsureLoadBalancerResponse{}, nil
	}}
	conn := serve(t, provider(t, cloud)).dial(t)
	lead(t, conn, 1, long)
	answered := ensureLed(t, conn)
	receive(t, begun, "the mutation")
	lead(t, conn, 1, zero)
	receive(t, ended, "the end of what it left behind")
	err := receive(t, answered, "the answer")
	expect(t, err, codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_STALE_LEADER)
	close(release)
}

// [R:lead-needed]
func TestWhoDoesNotLeadIsRefusedBeforeTheArgumentsAreLookedAt(t *testing.T) {
	conn := serve(t, provider(t, &cloud{})).dial(t)
	client := pb.NewLoadBalancersClient(conn)
	if _, err := client.EnsureLoadBalancer(soon(t), ensureRequest()); err != nil {
		t.Error("leader election is off, and nobody led", err)
	}
	malformed := &pb.DeleteLoadBalancerRequest{Cluster: clusterRef(), Fencing: &pb.Fencing{Scope: "lease", Epoch: 1}}
	_, err := client.DeleteLoadBalancer(soon(t), malformed)
	expect(t, err, codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_STALE_LEADER)
	nameless := &pb.DeleteLoadBalancerRequest{Cluster: &pb.ClusterRef{Name: "prod"}, Fencing: &pb.Fencing{Scope: "lease", Epoch: 1}}
	_, err = client.DeleteLoadBalancer(soon(t), nameless)
	expect(t, err, codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT_SHAPE)
	lead(t, conn, 1, long)
	_, err = client.DeleteLoadBalancer(soon(t), malformed)
	expect(t, err, codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT_SHAPE)
	_, err = client.EnsureLoadBalancer(soon(t), ensureRequest())
	expect(t, err, codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_STALE_LEADER)
	_, err = pb.NewInstancesClient(conn).BatchGetInstances(soon(t), queries("a"))
	if err != nil {
		t.Error("a read needs no leader", err)
	}
}

// [R:lead-ends]
func TestBackgroundWorkRunsWhileSomebodyLeads(t *testing.T) {
	counts, running := make(chan int32, 10), atomic.Int32{}
	made := provider(t, &cloud{}, sdk.WithWhileLeading(func(ctx context.Context, cluster *pb.ClusterRef) {
		if cluster.GetUid() != clusterRef().GetUid() {
			t.Error(cluster)
		}
		counts <- running.Add(1)
		<-ctx.Done()
		counts <- running.Add(-1)
	}))
	served := serve(t, made)
	conn := served.dial(t)
	expectCounts := func(how string, wanted ...int32) {
		t.Helper()
		for _, want := range wanted {
			if got := receive(t, counts, how); got != want {
				t.Fatalf("%s: %d run, not %d", how, got, want)
			}
		}
	}
	lead(t, conn, 1, long)
	expectCounts("the first leader", 1)
	lead(t, conn, 1, long)
	lead(t, conn, 2, nil)
	expectCounts("another leader, after a renewal", 0, 1)
	lead(t, conn, 2, zero)
	expectCounts("stepping down", 0)
	lead(t, conn, 2, durationpb.New(200*time.Millisecond))
	expectCounts("the end of its time", 1, 0)
	lead(t, conn, 3, long)
	expectCounts("the last leader", 1)
	served.Stop()
	served.wait(t)
	expectCounts("the stop, which waits for it", 0)
}

// A provider that ends its process with its term needs to see the end of each. [R:lead-ends]
func TestBackgroundWorkSeesTheEndOfATermThatEndedBeforeItCouldStart(t *testing.T) {
	begun, release := make(chan error, 10), make(chan struct{})
	conn := serve(t, provider(t, &cloud{}, sdk.WithWhileLeading(func(ctx context.Context, _ *pb.ClusterRef) {
		begun <- ctx.Err()
		<-release
	}))).dial(t)
	lead(t, conn, 1, long)
	if err := receive(t, begun, "the work of the first term"); err != nil {
		t.Fatal(err)
	}
	lead(t, conn, 2, long)
	lead(t, conn, 2, zero)
	close(release)
	if err := receive(t, begun, "the work of the second term"); err != context.Canceled {
		t.Fatal(err)
	}
}
