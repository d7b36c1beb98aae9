package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/bridge"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// A call that never returns is answered at the deadline, hangs once only, and health tells when too many do.
func TestCallsThatNeverReturnAreBounded(t *testing.T) {
	const limit = 16 // hanging calls for each that may run
	release, calls := make(chan struct{}), atomic.Int32{}
	cloud := newer()
	cloud.exists = func(context.Context, *v1.Node) (bool, error) {
		calls.Add(1)
		<-release // Looks at no context.
		return true, nil
	}
	conn := serve(t, cloud, bridge.WithConcurrency(1))
	t.Cleanup(func() {
		select {
		case <-release:
		default:
			close(release)
		}
	})
	ask := func(name string, within time.Duration) (*pb.BatchGetInstancesResponse, error) {
		ctx, done := context.WithTimeout(context.Background(), within)
		defer done()
		return pb.NewInstancesClient(conn).BatchGetInstances(ctx, batch(&pb.NodeRef{Name: name, ProviderId: "fake://" + name}))
	}
	for range 3 {
		answer, err := ask("a", 3*time.Second)
		if err != nil || answer.GetResults()[0].GetError().GetReason() != pb.ErrorReason_ERROR_REASON_LOCATION_UNREACHABLE {
			t.Fatal(answer, err)
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
	// Whether the bridge or the library tells that the time is over is all the same here.
	for i, end := 0, time.Now().Add(patience); serving() == healthpb.HealthCheckResponse_SERVING && time.Now().Before(end); i++ {
		_, _ = ask(fmt.Sprint("b", i), 100*time.Millisecond)
	}
	_, _ = ask("c", 100*time.Millisecond)
	if calls.Load() != limit {
		t.Errorf("%d calls hang", calls.Load())
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

// While nothing can be learned of any machine, nothing shall be destroyed; "not found" is an answer.
func TestABatchWhollyInVainShows(t *testing.T) {
	failure := error(nil)
	cloud := newer()
	cloud.exists = func(context.Context, *v1.Node) (bool, error) { return true, failure }
	conn := serve(t, cloud)
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
		return pb.ConditionStatus_CONDITION_STATUS_UNSPECIFIED
	}
	if got := condition(); got != pb.ConditionStatus_CONDITION_STATUS_UNSPECIFIED {
		t.Error(got, "though nothing was asked yet")
	}
	for _, row := range []struct {
		err  error
		want pb.ConditionStatus
	}{
		{errors.New("503"), pb.ConditionStatus_CONDITION_STATUS_FALSE},
		{nil, pb.ConditionStatus_CONDITION_STATUS_TRUE},
		{cloudprovider.InstanceNotFound, pb.ConditionStatus_CONDITION_STATUS_TRUE},
	} {
		failure = row.err
		request := batch(&pb.NodeRef{Name: "a", ProviderId: "fake://a"}, &pb.NodeRef{Name: "b", ProviderId: "other://b"})
		if _, err := pb.NewInstancesClient(conn).BatchGetInstances(soon(t), request); err != nil {
			t.Fatal(err)
		}
		if got := condition(); got != row.want {
			t.Errorf("%v: %v", row.err, got)
		}
	}
}
