package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/bridge"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// A call that never returns is answered at the deadline and hangs only once, and health reports too many of them.
func TestCallsThatNeverReturnAreBounded(t *testing.T) {
	const limit, atOnce = 16 * 16, 15 // 16 hanging calls for each that may run.
	release, calls, another := make(chan struct{}), atomic.Int32{}, atomic.Bool{}
	cloud := newer()
	cloud.exists = func(_ context.Context, node *v1.Node) (bool, error) {
		calls.Add(1)
		another.CompareAndSwap(false, node.Name == "c")
		<-release // Ignores its context.
		return true, nil
	}
	conn := serve(t, cloud, bridge.WithPatience(time.Second))
	t.Cleanup(func() {
		select {
		case <-release:
		default:
			close(release)
		}
	})
	ask := func(ctx context.Context, names ...string) (*pb.BatchGetInstancesResponse, error) {
		var nodes []*pb.NodeRef
		for _, name := range names {
			nodes = append(nodes, &pb.NodeRef{Name: name, ProviderId: "fake://" + name})
		}
		return pb.NewInstancesClient(conn).BatchGetInstances(ctx, batch(nodes...))
	}
	hurry := func(names ...string) {
		ctx, done := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer done()
		// It does not matter here whether the bridge or the library reports the deadline.
		_, _ = ask(ctx, names...)
	}
	for range 3 {
		answer := inTime(t, func(ctx context.Context) (*pb.BatchGetInstancesResponse, error) { return ask(ctx, "a") })
		if answer.GetResults()[0].GetError().GetReason() != pb.ErrorReason_ERROR_REASON_LOCATION_UNREACHABLE {
			t.Fatal(answer)
		}
	}
	if calls.Load() != 1 {
		t.Errorf("one machine that hangs was asked %d times", calls.Load())
	}
	health := healthpb.NewHealthClient(conn)
	serving := func() healthpb.HealthCheckResponse_ServingStatus {
		answer, err := health.Check(soon(t), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetStatus()
	}
	if serving() != healthpb.HealthCheckResponse_SERVING {
		t.Error("one machine that hangs made the provider not serving")
	}
	for i, end := 0, time.Now().Add(patience); serving() == healthpb.HealthCheckResponse_SERVING && time.Now().Before(end); i++ {
		names := make([]string, atOnce)
		for at := range names {
			names[at] = fmt.Sprint("b", i, "-", at)
		}
		hurry(names...)
	}
	// Calls that the bridge has begun, and given up, may not have reached the cloud yet.
	for end := time.Now().Add(patience); calls.Load() < limit && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	// The caller may have heard of its deadline before the last calls but one were given up.
	if hanging := calls.Load(); hanging < limit || hanging > limit+atOnce {
		t.Errorf("%d calls hang", hanging)
	}
	hurry("c")
	if another.Load() {
		t.Error("another call began")
	}
	status, err := pb.NewCloudProviderClient(conn).GetStatus(soon(t), &pb.GetStatusRequest{})
	if err != nil || len(status.GetConditions()) != 1 || status.GetConditions()[0].GetReason() != "CallsHang" {
		t.Error(status, err)
	}
	if serving() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Error("serving though too many calls hang")
	}
	close(release)
	for end := time.Now().Add(patience); serving() != healthpb.HealthCheckResponse_SERVING; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not serving though nothing hangs any more")
		}
	}
}

// A caller in a hurry gives up on a read that is only slow: the next caller waits for it, and is not told that the cloud is away.
func TestACallerInAHurryDoesNotSpoilTheNextCall(t *testing.T) {
	begun, release := make(chan struct{}, 2), make(chan struct{})
	cloud := newer()
	cloud.exists = func(context.Context, *v1.Node) (bool, error) {
		begun <- struct{}{}
		<-release
		return true, nil
	}
	client := pb.NewInstancesClient(serve(t, cloud))
	request := batch(&pb.NodeRef{Name: "a", ProviderId: "fake://a"})
	// Until one has come so far, on a busy machine.
	for within := 300 * time.Millisecond; len(begun) == 0 && within < patience; within *= 2 {
		hurried, done := context.WithTimeout(context.Background(), within)
		_, _ = client.BatchGetInstances(hurried, request)
		done()
	}
	<-begun
	time.AfterFunc(100*time.Millisecond, func() { close(release) })
	answer, err := client.BatchGetInstances(soon(t), request)
	if err != nil || answer.GetResults()[0].GetState() != pb.InstanceState_INSTANCE_STATE_RUNNING {
		t.Fatal(answer, err)
	}
}

// While nothing can be learned of any instance, nothing must be destroyed; "not found" is an answer. H7: failures for one or two
// instances prove nothing about the cloud; an answer about any other proves that it responds.
func TestWhenTheCloudDoesNotAnswer(t *testing.T) {
	failing, failure := map[string]bool{}, errors.New("503")
	cloud := newer()
	cloud.exists = func(_ context.Context, node *v1.Node) (bool, error) {
		if failing[node.Name] || failing["all"] {
			return false, failure
		}
		return true, nil
	}
	conn := serve(t, cloud)
	const yes, no, unknown = pb.ConditionStatus_CONDITION_STATUS_TRUE, pb.ConditionStatus_CONDITION_STATUS_FALSE, pb.ConditionStatus_CONDITION_STATUS_UNSPECIFIED
	condition := func() pb.ConditionStatus {
		answer, err := pb.NewCloudProviderClient(conn).GetStatus(soon(t), &pb.GetStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range answer.GetConditions() {
			if one.GetType() == pb.ConditionType_CONDITION_TYPE_CLOUD_REACHABLE {
				return one.GetStatus()
			}
		}
		return unknown
	}
	if got := condition(); got != unknown {
		t.Error(got, "though nothing was asked yet")
	}
	ask := func(names ...string) {
		request := batch(&pb.NodeRef{Name: "z", ProviderId: "other://z"})
		for _, name := range names {
			request.Queries = append(request.Queries, batch(&pb.NodeRef{Name: name, ProviderId: "fake://" + name}).Queries...)
		}
		if _, err := pb.NewInstancesClient(conn).BatchGetInstances(soon(t), request); err != nil {
			t.Fatal(err)
		}
	}
	list := func() {
		if _, err := pb.NewRoutesClient(conn).ListRoutes(soon(t), &pb.ListRoutesRequest{Cluster: clusterRef()}); err != nil {
			t.Fatal(err)
		}
	}
	for at, row := range []struct {
		failing string
		nodes   []string
		list    bool
		want    pb.ConditionStatus
	}{
		{"", []string{"a", "b"}, false, yes},
		{"a", []string{"a"}, false, yes},
		{"a", []string{"a"}, false, yes}, // Only the failing one is queried, repeatedly.
		{"a", []string{"a"}, false, yes},
		{"all", []string{"b"}, false, yes},
		{"all", []string{"c"}, false, no},
		{"all", nil, true, yes},
		{"all", []string{"a", "b", "c"}, false, no},
		{"", []string{"b"}, false, yes},
		{"all", []string{"a", "b", "c", "d"}, false, no},
	} {
		clear(failing)
		failing[row.failing] = true
		if len(row.nodes) > 0 {
			ask(row.nodes...)
		}
		if row.list {
			list()
		}
		if got := condition(); got != row.want {
			t.Errorf("row %d: %v", at, got)
		}
	}
	failure = cloudprovider.InstanceNotFound
	if ask("a", "b", "c"); condition() != yes {
		t.Error("not found is no answer")
	}
}

// A location that hangs must not hold up the reads of others until the callers of its own give up.
func TestReadsThatTakeLongLeaveTheirPlaces(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	made := newer()
	made.exists = func(_ context.Context, node *v1.Node) (bool, error) {
		if strings.HasPrefix(node.Name, "hangs") {
			<-release
		}
		return true, nil
	}
	conn := serve(t, made, bridge.WithConcurrentReads(2), impatient)
	ask := func(within time.Duration, names ...string) []*pb.InstanceResult {
		var refs []*pb.NodeRef
		for _, name := range names {
			refs = append(refs, &pb.NodeRef{Name: name, ProviderId: "fake://" + name})
		}
		ctx, done := context.WithTimeout(context.Background(), within)
		defer done()
		answer, _ := pb.NewInstancesClient(conn).BatchGetInstances(ctx, batch(refs...))
		return answer.GetResults()
	}
	hanging := make(chan struct{})
	go func() {
		defer close(hanging)
		ask(20*time.Second, "hangs-1", "hangs-2")
	}()
	eventually(t, func() bool {
		answer := ask(2*time.Second, "a", "b", "c")
		return len(answer) == 3 && answer[2].GetState() == pb.InstanceState_INSTANCE_STATE_RUNNING
	})
	select {
	case <-hanging:
		t.Error("only once the others gave up")
	default:
	}
}

// A provider whose reads write a map without a lock stands one at a time: in the process, not in a call of the host, and also after the
// caller has given up. One that stands more goes on without the one that hangs.
func TestReadsAreCountedOverAllCallsUntilTheyReturn(t *testing.T) {
	for places, want := range map[int]int32{1: 1, 2: 2} {
		var running, most atomic.Int32
		release := make(chan struct{})
		made := newer()
		made.exists = func(_ context.Context, node *v1.Node) (bool, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			if node.Name == "hangs" {
				<-release
			}
			return true, nil
		}
		made.stands = func(*v1.Service) bool {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			return true
		}
		conn := serve(t, made, bridge.WithConcurrentReads(places), impatient)
		asked := func(name string) bool {
			ctx, done := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer done()
			answer, err := pb.NewInstancesClient(conn).BatchGetInstances(ctx, batch(&pb.NodeRef{Name: name, ProviderId: "fake://" + name}))
			return err == nil && answer.GetResults()[0].GetState() == pb.InstanceState_INSTANCE_STATE_RUNNING
		}
		if asked("hangs") {
			t.Fatal("answered")
		}
		looked := func() bool {
			ctx, done := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer done()
			_, err := pb.NewLoadBalancersClient(conn).GetLoadBalancer(ctx, &pb.GetLoadBalancerRequest{Cluster: clusterRef(), Service: &pb.ServiceRef{Namespace: "d", Name: "s", Uid: "s"}})
			return err == nil
		}
		if places == 1 {
			if asked("a") || looked() || most.Load() != want {
				t.Errorf("%d at once", most.Load())
			}
			// Nothing else helps than to start the process again.
			eventually(t, func() bool { return condition(t, conn, "CallsHang") })
			close(release)
			eventually(t, func() bool { return asked("a") && looked() && !condition(t, conn, "CallsHang") })
			continue
		}
		eventually(t, func() bool { return asked("a") && looked() })
		asked("b")
		if most.Load() > want {
			t.Errorf("%d at once", most.Load())
		}
		close(release)
	}
}

// condition reports whether the provider's condition has this reason.
func condition(t *testing.T, conn *grpc.ClientConn, reason string) bool {
	t.Helper()
	answer, err := pb.NewCloudProviderClient(conn).GetStatus(soon(t), &pb.GetStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(answer.GetConditions(), func(one *pb.ProviderCondition) bool { return one.GetReason() == reason })
}
