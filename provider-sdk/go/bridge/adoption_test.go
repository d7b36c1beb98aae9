package bridge_test

import (
	"context"
	"errors"
	"testing"

	"cloudprovider.ccm/sdk/bridge"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
)

// H4: a provider finds a former controller's balancer by its name. If the bridge knows which balancers are ours, neither Ensure nor
// Delete touches another one without adoption.
func TestAFormerControllersBalancer(t *testing.T) {
	const refuse, adopt = pb.Adoption_ADOPTION_REFUSE, pb.Adoption_ADOPTION_ADOPT_BY_LEGACY_NAME
	state, cloud := t.TempDir(), newer()
	cloud.Exists = true
	ensures, deletes := 0, 0
	fails := false
	cloud.ensure = func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
		if ensures++; fails {
			return nil, errors.New("half-way")
		}
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}}, nil
	}
	cloud.remove = func(context.Context, *v1.Service) error {
		deletes++
		return nil
	}
	process := func(work func(*grpc.ClientConn)) {
		t.Run("process", func(t *testing.T) { work(serve(t, cloud, bridge.WithStateDir(state), bridge.WithCompleteState())) })
	}
	ensure := func(conn *grpc.ClientConn, adoption pb.Adoption) error {
		request := ensureRequest("s")
		request.Adoption = adoption
		_, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request)
		return err
	}
	remove := func(conn *grpc.ClientConn, adoption pb.Adoption) error {
		request := deleteRequest("s")
		request.Adoption = adoption
		_, err := pb.NewLoadBalancersClient(conn).DeleteLoadBalancer(soon(t), request)
		return err
	}
	process(func(conn *grpc.ClientConn) {
		expect(t, ensure(conn, refuse), codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_ADOPTION_REFUSED)
		if err := remove(conn, refuse); err != nil || ensures != 0 || deletes != 0 {
			t.Error(err, ensures, deletes)
		}
		if err := ensure(conn, adopt); err != nil || ensures != 1 {
			t.Error(err, ensures)
		}
	})
	// From now on it is ours, even if an Ensure fails, and after a restart.
	process(func(conn *grpc.ClientConn) {
		fails = true
		if err := ensure(conn, refuse); err == nil {
			t.Error("no error")
		}
	})
	process(func(conn *grpc.ClientConn) {
		fails = false
		if err := ensure(conn, refuse); err != nil || ensures != 3 {
			t.Error(err, ensures)
		}
		if err := remove(conn, refuse); err != nil || deletes != 1 {
			t.Error(err, deletes)
		}
		// Now it no longer is.
		expect(t, ensure(conn, refuse), codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_ADOPTION_REFUSED)
		// A new one is created without asking for adoption.
		cloud.Exists = false
		if err := ensure(conn, refuse); err != nil {
			t.Error(err)
		}
	})
}

// Without a state directory nobody knows, after a restart, which balancers are ours: the provider acts as it always did.
func TestWithoutAStateFolderNamesDecide(t *testing.T) {
	cloud := newer()
	cloud.Exists = true
	conn := serve(t, cloud)
	if err := ensure(t, conn, "s"); err != nil {
		t.Error(err)
	}
}
