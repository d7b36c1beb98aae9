package bridge_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/bridge"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	discovery "cloudprovider.ccm/sdk/gen/ccm/discovery/v1"
	"context"
	"errors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
)

// listed returns the digests in a list, by Service, and whether the list is complete.
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

// Another host that introduces itself may follow another leader elsewhere, so entries in memory are no longer proof. A mere look
// changes nothing: the entries count again as soon as the same leader changes something.
func TestMemoryHoldsForTheTermOfItsLeader(t *testing.T) {
	updates := 0
	cloud := newer()
	cloud.update = func(context.Context, *v1.Service, []*v1.Node) error {
		updates++
		return nil
	}
	conn := serve(t, cloud)
	term := &pb.Fencing{Scope: "lease", Epoch: 3}
	lead(t, conn, term, nil)
	request := ensureRequest("a")
	request.Fencing = term
	if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err != nil {
		t.Fatal(err)
	}
	if digests, complete := listed(t, conn); digests["a"] != "digest-1" || complete {
		t.Error(digests, complete)
	}
	introduce := func() {
		if _, err := discovery.NewDiscoveryClient(conn).GetInfo(soon(t), &discovery.GetInfoRequest{}); err != nil {
			t.Fatal(err)
		}
		if digests, _ := listed(t, conn); len(digests) != 0 {
			t.Error(digests)
		}
	}
	update := func(digest string) *pb.LoadBalancerUpdateResult {
		request := updateRequest(&pb.LoadBalancerUpdate{Service: service("a"), DesiredDigest: digest})
		request.Fencing = term
		answer, err := pb.NewLoadBalancersClient(conn).BatchUpdateLoadBalancers(soon(t), request)
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetResults()[0]
	}
	introduce()
	if got := update("digest-2"); got.GetOutcome() != pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED || updates != 1 {
		t.Error(got, updates)
	}
	if digests, _ := listed(t, conn); digests["a"] != "digest-2" {
		t.Error(digests)
	}
	introduce()
	term = &pb.Fencing{Scope: "lease", Epoch: 4}
	lead(t, conn, term, nil)
	if got := update("digest-3"); got.GetError().GetReason() != pb.ErrorReason_ERROR_REASON_NEEDS_ENSURE {
		t.Error(got)
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
		if len(digests) != 3 || digests["a"] != "digest-1" || digests["b"] != "" || digests["../../c"] != "digest-1" || !complete {
			t.Error(digests, complete)
		}
		// An update needs no Ensure, since the applied state is known.
		answer, err := pb.NewLoadBalancersClient(conn).BatchUpdateLoadBalancers(soon(t),
			updateRequest(&pb.LoadBalancerUpdate{Service: service("a"), DesiredDigest: "digest-2"}))
		if err != nil || answer.GetResults()[0].GetOutcome() != pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED {
			t.Error(answer, err)
		}
		if _, err := pb.NewLoadBalancersClient(conn).DeleteLoadBalancer(soon(t), deleteRequest("../../c")); err != nil {
			t.Error(err)
		}
		if digests, _ := listed(t, conn); len(digests) != 2 || digests["a"] != "digest-2" {
			t.Error(digests)
		}
	})
}

// A balancer stays listed until it is deleted, or a host would take it for absent; and it is deleted as the Service that it was
// made for, however often that takes.
func TestAFailedChangeHidesNoBalancer(t *testing.T) {
	for name, options := range map[string][]bridge.Option{"memory": nil, "folder": {bridge.WithStateDir(t.TempDir()), bridge.WithCompleteState()}} {
		t.Run(name, func(t *testing.T) {
			cloud, half := newer(), errors.New("half done")
			conn := serve(t, cloud, options...)
			request := ensureRequest("a")
			request.Service.Annotations = map[string]string{"cloud.example/kind": "network"}
			if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err != nil {
				t.Fatal(err)
			}
			stays := func() {
				t.Helper()
				if digests, _ := listed(t, conn); !maps.Equal(digests, map[string]string{"a": ""}) {
					t.Error("listed:", digests)
				}
			}
			cloud.ensure = func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) { return nil, half }
			request.DesiredDigest = "digest-2"
			if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err == nil {
				t.Error("no error")
			}
			stays()
			// The digest before the failure proves nothing.
			answer, err := pb.NewLoadBalancersClient(conn).BatchUpdateLoadBalancers(soon(t),
				updateRequest(&pb.LoadBalancerUpdate{Service: service("a"), DesiredDigest: "digest-1"}))
			if err != nil || answer.GetResults()[0].GetError().GetReason() != pb.ErrorReason_ERROR_REASON_NEEDS_ENSURE {
				t.Error(answer, err)
			}
			for _, result := range []error{half, api.NewRetryError("draining", time.Second), nil} {
				cloud.remove = func(_ context.Context, got *v1.Service) error {
					if got.Annotations["cloud.example/kind"] != "network" {
						t.Error("deleted as", got.Annotations)
					}
					return result
				}
				stays()
				if _, err := pb.NewLoadBalancersClient(conn).DeleteLoadBalancer(soon(t), deleteRequest("a")); (err != nil) != (result == half) {
					t.Error(err)
				}
			}
			if digests, _ := listed(t, conn); len(digests) != 0 {
				t.Error(digests)
			}
		})
	}
}

// Nothing changes in the cloud unless the known state can be dropped first.
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
	// An unreadable entry is unknown; one that cannot be removed prevents the change.
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

// A name does not distinguish clusters; what was applied does. [R:cluster-owns-by-uid]
func TestAnotherClustersBalancerIsNotTouched(t *testing.T) {
	for _, options := range [][]bridge.Option{nil, {bridge.WithStateDir(t.TempDir())}} {
		cloud, deleted := newer(), 0
		cloud.remove = func(context.Context, *v1.Service) error {
			deleted++
			return nil
		}
		conn := serve(t, cloud, options...)
		balancers := pb.NewLoadBalancersClient(conn)
		if err := ensure(t, conn, "a"); err != nil {
			t.Fatal(err)
		}
		other := &pb.ClusterRef{Uid: "cluster-2", Name: "name-1"}
		found, err := balancers.GetLoadBalancer(soon(t), &pb.GetLoadBalancerRequest{Cluster: other, Service: service("a").GetRef()})
		if err != nil || found.GetLoadBalancer().GetState() != pb.LoadBalancerState_LOAD_BALANCER_STATE_NOT_OWNED {
			t.Error(found, err)
		}
		wanted := ensureRequest("a")
		wanted.Cluster = other
		_, err = balancers.EnsureLoadBalancer(soon(t), wanted)
		expect(t, err, codes.AlreadyExists, pb.ErrorReason_ERROR_REASON_OWNED_BY_OTHER_CLUSTER)
		gone := deleteRequest("a")
		gone.Cluster = other
		if _, err := balancers.DeleteLoadBalancer(soon(t), gone); err != nil || deleted != 0 {
			t.Error(err, deleted)
		}
	}
}

// The provider finds its resources by the cluster's name, the contract by its uid: the first name of a uid stays.
func TestTheFirstNameOfAClusterStays(t *testing.T) {
	state := t.TempDir()
	names := map[string]bool{}
	for _, name := range []string{"first", "second", ""} {
		t.Run("process", func(t *testing.T) {
			cloud := &named{cloud: newer(), names: names}
			request := ensureRequest("a")
			request.Cluster = &pb.ClusterRef{Uid: "cluster-1", Name: name}
			conn := serve(t, cloud, bridge.WithStateDir(state))
			if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err != nil {
				t.Fatal(err)
			}
		})
	}
	if len(names) != 1 || !names["first"] {
		t.Error(names)
	}
}

// named records the names of clusters.
type named struct {
	*cloud
	names map[string]bool
}

func (n *named) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return n, true }

func (n *named) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	n.names[cluster] = true
	return n.cloud.EnsureLoadBalancer(ctx, cluster, service, nodes)
}

func TestAPortWithoutAProtocolIsRefused(t *testing.T) {
	request := ensureRequest("a")
	request.Service.Ports = append(request.Service.Ports, &pb.ServicePort{Port: 81})
	_, err := pb.NewLoadBalancersClient(serve(t, newer())).EnsureLoadBalancer(soon(t), request)
	expect(t, err, codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_UNSUPPORTED_FEATURE)
}

// Only a state directory makes the applied state known after a restart.
func TestADigestIsDurableInAFolder(t *testing.T) {
	for folder, want := range map[string]bool{"": false, t.TempDir(): true} {
		var options []bridge.Option
		if folder != "" {
			options = append(options, bridge.WithStateDir(folder))
		}
		base := pb.NewCloudProviderClient(serve(t, newer(), options...))
		answer, err := base.GetCapabilities(soon(t), &pb.GetCapabilitiesRequest{})
		if err != nil || slices.Contains(answer.GetCapabilities(), pb.Capability_CAPABILITY_DURABLE_DIGEST) != want {
			t.Errorf("folder %q: %v %v", folder, answer, err)
		}
	}
}
