package bridge_test

import (
	"os"
	"path/filepath"
	"testing"

	"cloudprovider.ccm/sdk/bridge"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	discovery "cloudprovider.ccm/sdk/gen/ccm/discovery/v1"
	"context"
	"errors"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
)

// listed answers the digests that a list tells, by Service, and whether the list is complete.
func listed(t *testing.T, conn *grpc.ClientConn) (digests map[string]string, complete bool) {
	t.Helper()
	answer, err := pb.NewLoadBalancersClient(conn).ListLoadBalancers(soon(t), &pb.ListLoadBalancersRequest{Cluster: clusterRef()})
	if err != nil {
		t.Fatal(err)
	}
	digests = map[string]string{}
	for _, one := range answer.GetLoadBalancers() {
		digests[one.GetService().GetUid()] = one.GetAppliedDigest()
	}
	return digests, len(answer.GetUnreachable()) == 0
}

func ensure(t *testing.T, conn *grpc.ClientConn, uid string) error {
	t.Helper()
	_, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), ensureRequest(uid))
	return err
}

// Another host that introduces itself may come after another leader elsewhere: what is in memory is no proof any more.
func TestMemoryHoldsForTheHostThatIsThere(t *testing.T) {
	conn := serve(t, newer())
	if err := ensure(t, conn, "a"); err != nil {
		t.Fatal(err)
	}
	if digests, complete := listed(t, conn); digests["a"] != "digest-1" || complete {
		t.Error(digests, complete)
	}
	if _, err := discovery.NewDiscoveryClient(conn).GetInfo(soon(t), &discovery.GetInfoRequest{}); err != nil {
		t.Fatal(err)
	}
	if digests, _ := listed(t, conn); len(digests) != 0 {
		t.Error(digests)
	}
}

func TestAStateFolderSurvivesARestart(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	cloud := newer()
	serveOnce := func(work func(*grpc.ClientConn)) {
		t.Run("process", func(t *testing.T) { work(serve(t, cloud, bridge.WithStateDir(state), bridge.WithCompleteState())) })
	}
	serveOnce(func(conn *grpc.ClientConn) {
		for _, uid := range []string{"a", "b", "../../c"} {
			if err := ensure(t, conn, uid); err != nil {
				t.Fatal(err)
			}
		}
		cloud.ensure = func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
			return nil, errors.New("half done")
		}
		if ensure(t, conn, "b") == nil {
			t.Error("no error")
		}
	})
	serveOnce(func(conn *grpc.ClientConn) {
		digests, complete := listed(t, conn)
		if len(digests) != 2 || digests["a"] != "digest-1" || digests["../../c"] != "digest-1" || !complete {
			t.Error(digests, complete)
		}
		// An update needs no Ensure, since it is known what is applied.
		answer, err := pb.NewLoadBalancersClient(conn).BatchUpdateLoadBalancers(soon(t),
			updateRequest(&pb.LoadBalancerUpdate{Service: service("a"), DesiredDigest: "digest-2"}))
		if err != nil || answer.GetResults()[0].GetOutcome() != pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED {
			t.Error(answer, err)
		}
		if _, err := pb.NewLoadBalancersClient(conn).DeleteLoadBalancer(soon(t), deleteRequest("../../c")); err != nil {
			t.Error(err)
		}
		if digests, _ := listed(t, conn); len(digests) != 1 || digests["a"] != "digest-2" {
			t.Error(digests)
		}
	})
}

// Nothing is changed in the cloud while what is known of it cannot be taken back first.
func TestAStateFolderThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bridge.New(newer(), bridge.WithStateDir(filepath.Join(file, "state"))); err == nil {
		t.Error("no error")
	}
	state := t.TempDir()
	conn := serve(t, newer(), bridge.WithStateDir(state))
	if err := ensure(t, conn, "a"); err != nil {
		t.Fatal(err)
	}
	entries, err := filepath.Glob(filepath.Join(state, "*", "*.json"))
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	// What is no entry is not known; what cannot be removed stops the change.
	if err := os.Remove(entries[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(entries[0], "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if digests, complete := listed(t, conn); len(digests) != 0 || complete {
		t.Error(digests, complete)
	}
	if ensure(t, conn, "a") == nil {
		t.Error("changed though the old state could not be taken back")
	}
}
