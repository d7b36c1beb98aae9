package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	discovery "cloudprovider.ccm/sdk/gen/ccm/discovery/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
)

var errHalf = errors.New("half done")

// standing is a cloud that shows what its balancer has: the port of the Service and the nodes. Edits to port 81 fail half-way.
type standing struct {
	*cloud
	has     string
	ensures int
	updates int
}

func stands() *standing {
	s := &standing{cloud: newer()}
	set := func(service *v1.Service, nodes []*v1.Node) {
		s.has = fmt.Sprint(service.Spec.Ports[0].Port)
		for _, node := range nodes {
			s.has += " " + node.Name
		}
	}
	s.stands = func(*v1.Service) bool { return s.has != "" }
	s.ensure = func(_ context.Context, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
		if s.ensures++; service.Spec.Ports[0].Port == 81 {
			return nil, errHalf
		}
		set(service, nodes)
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}}, nil
	}
	s.update = func(_ context.Context, service *v1.Service, nodes []*v1.Node) error {
		s.updates++
		set(service, nodes)
		return nil
	}
	s.remove = func(context.Context, *v1.Service) error {
		s.has = ""
		return nil
	}
	return s
}

// listed returns the digests in a list, by Service. A list is never complete.
func listed(t *testing.T, conn *grpc.ClientConn) map[string]string {
	t.Helper()
	answer, err := pb.NewLoadBalancersClient(conn).ListLoadBalancers(soon(t), &pb.ListLoadBalancersRequest{Cluster: clusterRef()})
	if err != nil || len(answer.GetUnreachable()) != 1 {
		t.Fatal(answer, err)
	}
	digests := map[string]string{}
	for _, one := range answer.GetLoadBalancers() {
		if one.GetOwnership() != pb.Ownership_OWNERSHIP_BY_UID || len(one.GetIngress()) == 0 {
			t.Error(one)
		}
		digests[one.GetService().GetUid()] = one.GetAppliedDigest()
	}
	return digests
}

func ensure(t *testing.T, conn *grpc.ClientConn, uid string) error {
	t.Helper()
	_, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), ensureRequest(uid))
	return err
}

// edited is the Service with another port, which the cloud of stands refuses.
func edited(uid string) *pb.Service {
	out := service(uid)
	out.Ports[0].Port = 81
	return out
}

func edit(t *testing.T, conn *grpc.ClientConn, uid string) {
	t.Helper()
	request := ensureRequest(uid)
	request.Service, request.DesiredDigest = edited(uid), "digest-of-edit"
	if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err == nil {
		t.Fatal("no error")
	}
}

// follow gives the balancer of a Service these nodes by an update.
func follow(t *testing.T, conn *grpc.ClientConn, service *pb.Service, digest string, nodes ...string) *pb.LoadBalancerUpdateResult {
	t.Helper()
	request := updateRequest(&pb.LoadBalancerUpdate{Service: service, DesiredDigest: digest})
	request.Backends.Nodes = nil
	for _, node := range nodes {
		request.Backends.Nodes = append(request.Backends.Nodes, &pb.NodeRef{Name: node})
	}
	answer, err := pb.NewLoadBalancersClient(conn).BatchUpdateLoadBalancers(soon(t), request)
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetResults()[0]
}

func isUpdated(t *testing.T, got *pb.LoadBalancerUpdateResult) {
	t.Helper()
	if got.GetOutcome() != pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED || got.GetError() != nil {
		t.Error(got)
	}
}

func isNot(t *testing.T, got *pb.LoadBalancerUpdateResult, reason pb.ErrorReason) {
	t.Helper()
	if got.GetOutcome() != pb.UpdateOutcome_UPDATE_OUTCOME_NOT_UPDATED || got.GetError().GetReason() != reason {
		t.Errorf("%v, want %v", got, reason)
	}
}

const (
	needsEnsure   = pb.ErrorReason_ERROR_REASON_NEEDS_ENSURE
	internalError = pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR
)

// T1: every Ensure of an edit fails, and a node is replaced: the balancer follows, as it was applied. Whether the host sends the
// Service as applied or, after its restart, as edited makes no difference.
func TestNodesFollowAfterAFailedEnsure(t *testing.T) {
	for name, sent := range map[string]*pb.Service{"applied": service("s"), "edited": edited("s")} {
		t.Run(name, func(t *testing.T) {
			cloud := stands()
			conn := serve(t, cloud)
			if err := ensure(t, conn, "s"); err != nil || cloud.has != "80 a b" {
				t.Fatal(cloud.has, err)
			}
			for at, nodes := range [][]string{{"a", "c"}, {"c", "d"}} {
				edit(t, conn, "s")
				isUpdated(t, follow(t, conn, sent, fmt.Sprint("digest-", at), nodes...))
				if want := fmt.Sprint("80 ", nodes[0], " ", nodes[1]); cloud.has != want {
					t.Errorf("the balancer has %q, want %q", cloud.has, want)
				}
				// The edit may be half done, so nobody may conclude that the Service is as applied.
				if digests := listed(t, conn); !maps.Equal(digests, map[string]string{"s": ""}) {
					t.Error(digests)
				}
			}
			// The set of before is sent again, for example when the node returns: the digest of then proves nothing now.
			isUpdated(t, follow(t, conn, sent, "digest-1", "a", "b"))
			if cloud.has != "80 a b" || cloud.updates != 3 {
				t.Error(cloud.has, cloud.updates)
			}
			if err := ensure(t, conn, "s"); err != nil || listed(t, conn)["s"] != "digest-1" {
				t.Error(err, listed(t, conn))
			}
			isUpdated(t, follow(t, conn, sent, "digest-1", "a", "b"))
			if cloud.updates != 3 {
				t.Error("updated though it is as wanted")
			}
		})
	}
}

// T1: nothing was applied before. Then the cloud decides: an update makes no balancer, but one that stands half done gets nodes.
func TestNodesFollowAfterAFirstEnsureThatFailed(t *testing.T) {
	cloud := stands()
	conn := serve(t, cloud)
	edit(t, conn, "s")
	isNot(t, follow(t, conn, edited("s"), "digest-1", "a"), needsEnsure)
	if cloud.has != "" || cloud.updates != 0 || len(listed(t, conn)) != 0 {
		t.Error("an update made", cloud.has)
	}
	cloud.has = "81"
	isUpdated(t, follow(t, conn, edited("s"), "digest-2", "a"))
	if cloud.has != "81 a" || listed(t, conn)["s"] != "" {
		t.Error(cloud.has, listed(t, conn))
	}
}

// R5: the bridge alone restarts. Nothing needs an Ensure: the host knows what is applied, and the balancer follows its nodes,
// also while an edit fails, and is deleted at last.
func TestARestartedBridgeCarriesOn(t *testing.T) {
	cloud := stands()
	process := func(work func(*grpc.ClientConn)) {
		t.Run("process", func(t *testing.T) { work(serve(t, cloud)) })
	}
	process(func(conn *grpc.ClientConn) {
		if err := ensure(t, conn, "s"); err != nil {
			t.Fatal(err)
		}
	})
	process(func(conn *grpc.ClientConn) {
		if digests := listed(t, conn); len(digests) != 0 {
			t.Error("known without memory:", digests)
		}
		isUpdated(t, follow(t, conn, service("s"), "digest-2", "a", "c"))
		if cloud.has != "80 a c" || listed(t, conn)["s"] != "digest-2" {
			t.Error(cloud.has, listed(t, conn))
		}
		isUpdated(t, follow(t, conn, service("s"), "digest-2", "a", "c"))
		if cloud.updates != 1 {
			t.Error("updated though it is as wanted")
		}
	})
	process(func(conn *grpc.ClientConn) {
		edit(t, conn, "s")
		isUpdated(t, follow(t, conn, service("s"), "digest-3", "c", "d"))
		if cloud.has != "80 c d" || listed(t, conn)["s"] != "" {
			t.Error(cloud.has, listed(t, conn))
		}
	})
	process(func(conn *grpc.ClientConn) {
		if _, err := pb.NewLoadBalancersClient(conn).DeleteLoadBalancer(soon(t), deleteRequest("s")); err != nil || cloud.has != "" {
			t.Error(cloud.has, err)
		}
		isNot(t, follow(t, conn, service("s"), "digest-4", "c"), needsEnsure)
	})
	if cloud.ensures != 2 {
		t.Errorf("%d Ensures; the host sent 2", cloud.ensures)
	}
}

// R6: NEEDS_ENSURE follows from what the cloud says: the balancer is gone, or the provider's own update keeps failing.
func TestWhatNeedsAnEnsure(t *testing.T) {
	cloud, conn := stands(), (*grpc.ClientConn)(nil)
	fails := func(err error) {
		cloud.update = func(context.Context, *v1.Service, []*v1.Node) error {
			cloud.updates++
			return err
		}
	}
	begin := func() {
		conn = serve(t, cloud)
		if err := ensure(t, conn, "s"); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	fails(errHalf)
	isNot(t, follow(t, conn, service("s"), "digest-2", "c"), internalError)
	isNot(t, follow(t, conn, service("s"), "digest-3", "d"), needsEnsure)
	fails(nil)
	isUpdated(t, follow(t, conn, service("s"), "digest-4", "e"))
	fails(errHalf)
	isNot(t, follow(t, conn, service("s"), "digest-5", "f"), internalError)
	if err := ensure(t, conn, "s"); err != nil {
		t.Error(err)
	}
	isNot(t, follow(t, conn, service("s"), "digest-6", "g"), internalError)
	if cloud.updates != 5 {
		t.Errorf("the provider was called %d times", cloud.updates)
	}
	// Work that goes on, and a cloud that is away, need nothing but time.
	begin()
	for range 3 {
		fails(api.NewRetryError("later", time.Second))
		if got := follow(t, conn, service("s"), "digest-7", "h"); got.GetInProgress() == nil || got.GetError() != nil {
			t.Error(got)
		}
		fails(fault.CloudAPIUnavailable())
		isNot(t, follow(t, conn, service("s"), "digest-8", "h"), pb.ErrorReason_ERROR_REASON_CLOUD_API_UNAVAILABLE)
	}
	// Gone, and a provider that says so by a failed update, as upstream's controller takes it.
	cloud.has = ""
	fails(errHalf)
	isNot(t, follow(t, conn, service("s"), "digest-9", "h"), needsEnsure)
	// A panic is a failure like any other.
	begin()
	cloud.update = func(context.Context, *v1.Service, []*v1.Node) error { panic("no pool") }
	isNot(t, follow(t, conn, service("s"), "digest-2", "h"), internalError)
	isNot(t, follow(t, conn, service("s"), "digest-3", "h"), needsEnsure)
}

// Another host that introduces itself may follow another leader elsewhere, so entries in memory are no longer proof. A mere look
// changes nothing: the entries count again as soon as the same leader changes something.
func TestMemoryHoldsForTheTermOfItsLeader(t *testing.T) {
	cloud := stands()
	conn := serve(t, cloud)
	term := &pb.Fencing{Scope: "lease", Epoch: 3}
	lead(t, conn, term, nil)
	request := ensureRequest("a")
	request.Fencing = term
	if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err != nil {
		t.Fatal(err)
	}
	if digests := listed(t, conn); digests["a"] != "digest-1" {
		t.Error(digests)
	}
	introduce := func() {
		if _, err := discovery.NewDiscoveryClient(conn).GetInfo(soon(t), &discovery.GetInfoRequest{}); err != nil {
			t.Fatal(err)
		}
		if digests := listed(t, conn); len(digests) != 0 {
			t.Error(digests)
		}
	}
	update := func(service *pb.Service, digest string) {
		request := updateRequest(&pb.LoadBalancerUpdate{Service: service, DesiredDigest: digest})
		request.Fencing = term
		answer, err := pb.NewLoadBalancersClient(conn).BatchUpdateLoadBalancers(soon(t), request)
		if err != nil {
			t.Fatal(err)
		}
		isUpdated(t, answer.GetResults()[0])
	}
	introduce()
	update(edited("a"), "digest-2")
	if digests := listed(t, conn); digests["a"] != "digest-2" || cloud.has != "80 c" {
		t.Error(digests, cloud.has)
	}
	introduce()
	term = &pb.Fencing{Scope: "lease", Epoch: 4}
	lead(t, conn, term, nil)
	// What another leader applied meanwhile is known to the host alone.
	update(edited("a"), "digest-3")
	if digests := listed(t, conn); digests["a"] != "digest-3" || cloud.has != "81 c" {
		t.Error(digests, cloud.has)
	}
}

// A balancer stays listed until it is deleted, or a host would take it for absent; and it is deleted as the Service that it was
// made for, however often that takes.
func TestAFailedChangeHidesNoBalancer(t *testing.T) {
	cloud := newer()
	conn := serve(t, cloud)
	request := ensureRequest("a")
	request.Service.Annotations = map[string]string{"cloud.example/kind": "network"}
	if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err != nil {
		t.Fatal(err)
	}
	stays := func() {
		t.Helper()
		if digests := listed(t, conn); !maps.Equal(digests, map[string]string{"a": ""}) {
			t.Error("listed:", digests)
		}
	}
	cloud.ensure = func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) { return nil, errHalf }
	request.DesiredDigest = "digest-2"
	if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err == nil {
		t.Error("no error")
	}
	stays()
	for _, result := range []error{errHalf, api.NewRetryError("draining", time.Second), nil} {
		cloud.remove = func(_ context.Context, got *v1.Service) error {
			if got.Annotations["cloud.example/kind"] != "network" {
				t.Error("deleted as", got.Annotations)
			}
			return result
		}
		stays()
		if _, err := pb.NewLoadBalancersClient(conn).DeleteLoadBalancer(soon(t), deleteRequest("a")); (err != nil) != (result == errHalf) {
			t.Error(err)
		}
	}
	if digests := listed(t, conn); len(digests) != 0 {
		t.Error(digests)
	}
}

// D18: a provider tells the kind of a balancer by an annotation. An edit to another kind fails half done, and the Service is
// deleted as edited: both go.
func TestABalancerIsDeletedAsItWasApplied(t *testing.T) {
	cloud := newer()
	conn := serve(t, cloud)
	balancers := pb.NewLoadBalancersClient(conn)
	request := ensureRequest("a")
	request.Service.Annotations = map[string]string{"cloud.example/kind": "network"}
	if _, err := balancers.EnsureLoadBalancer(soon(t), request); err != nil {
		t.Fatal(err)
	}
	cloud.ensure = func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) { return nil, errHalf }
	request.DesiredDigest, request.Service.Annotations = "digest-2", nil
	if _, err := balancers.EnsureLoadBalancer(soon(t), request); err == nil {
		t.Error("no error")
	}
	var kinds []string
	cloud.remove = func(_ context.Context, got *v1.Service) error {
		kinds = append(kinds, got.Annotations["cloud.example/kind"])
		return nil
	}
	cloud.stands = func(got *v1.Service) bool { return !slices.Contains(kinds, got.Annotations["cloud.example/kind"]) }
	gone := deleteRequest("a")
	gone.LastKnown = request.GetService()
	if _, err := balancers.DeleteLoadBalancer(soon(t), gone); err != nil || !slices.Equal(kinds, []string{"", "network"}) {
		t.Error(err, kinds)
	}
	// That it is being deleted is no edit.
	request = ensureRequest("b")
	cloud.ensure, kinds = nil, nil
	if _, err := balancers.EnsureLoadBalancer(soon(t), request); err != nil {
		t.Fatal(err)
	}
	gone = deleteRequest("b")
	gone.LastKnown = proto.CloneOf(request.GetService())
	gone.LastKnown.DeletionTime, gone.LastKnown.Finalizers = timestamppb.Now(), []string{"example.com/last"}
	if _, err := balancers.DeleteLoadBalancer(soon(t), gone); err != nil || len(kinds) != 1 {
		t.Error(err, kinds)
	}
}

// What is asked for last stays, such as a wish to keep the address: only annotations that are gone are shown once more.
func TestADeletionOverrulesNoWish(t *testing.T) {
	cloud := newer()
	conn := serve(t, cloud)
	request := ensureRequest("a")
	request.Service.Annotations = map[string]string{"cloud.example/kind": "network", "cloud.example/keep": "false"}
	if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err != nil {
		t.Fatal(err)
	}
	cloud.stands = func(*v1.Service) bool { return true }
	var kept []string
	cloud.remove = func(_ context.Context, got *v1.Service) error {
		kept = append(kept, got.Annotations["cloud.example/keep"]+got.Annotations["cloud.example/preserve"]+got.Spec.LoadBalancerIP)
		return nil
	}
	gone := deleteRequest("a")
	gone.LastKnown = proto.CloneOf(request.GetService())
	gone.LastKnown.Annotations = map[string]string{"cloud.example/keep": "true", "cloud.example/preserve": "true"}
	gone.LastKnown.LoadBalancerIp = "192.0.2.5"
	want := "truetrue192.0.2.5"
	if _, err := pb.NewLoadBalancersClient(conn).DeleteLoadBalancer(soon(t), gone); err != nil || !slices.Equal(kept, []string{want, want}) {
		t.Error(err, kept)
	}
}

// A wish that was taken back, such as openstack's to keep the floating IP, is overruled by none of before: the first call deletes all
// that there is, and only what stands then goes as it was applied.
func TestAWishThatWasTakenBackKeepsNothing(t *testing.T) {
	cloud := newer()
	conn := serve(t, cloud)
	request := ensureRequest("a")
	request.Service.Annotations = map[string]string{"cloud.example/keep-address": "true"}
	ensured(t, conn, request)
	balancer, address := true, true
	cloud.stands = func(*v1.Service) bool { return balancer }
	cloud.remove = func(_ context.Context, got *v1.Service) error {
		if balancer {
			address = got.Annotations["cloud.example/keep-address"] == "true"
		}
		balancer = false
		return nil
	}
	gone := deleteRequest("a")
	gone.LastKnown = service("a")
	if _, err := pb.NewLoadBalancersClient(conn).DeleteLoadBalancer(soon(t), gone); err != nil || balancer || address {
		t.Error(err, "balancer:", balancer, "address:", address)
	}
}

// A name does not distinguish clusters; what was applied does. [R:cluster-owns-by-uid]
func TestAnotherClustersBalancerIsNotTouched(t *testing.T) {
	cloud, deleted := newer(), 0
	cloud.Exists = true
	cloud.update = func(context.Context, *v1.Service, []*v1.Node) error {
		t.Error("updated for another cluster")
		return nil
	}
	cloud.remove = func(context.Context, *v1.Service) error {
		deleted++
		return nil
	}
	conn := serve(t, cloud)
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
	moved := updateRequest(&pb.LoadBalancerUpdate{Service: service("a"), DesiredDigest: "digest-2"})
	moved.Cluster = other
	answer, err := balancers.BatchUpdateLoadBalancers(soon(t), moved)
	if err != nil {
		t.Fatal(err)
	}
	isNot(t, answer.GetResults()[0], needsEnsure)
	gone := deleteRequest("a")
	gone.Cluster = other
	if _, err := balancers.DeleteLoadBalancer(soon(t), gone); err != nil || deleted != 0 {
		t.Error(err, deleted)
	}
}

// The provider finds its resources by the cluster's name, the contract by its uid: the first name of a uid stays.
func TestTheFirstNameOfAClusterStays(t *testing.T) {
	cloud := &named{cloud: newer(), names: map[string]bool{}}
	conn := serve(t, cloud)
	for at, name := range []string{"first", "second", ""} {
		request := ensureRequest("a")
		request.Cluster, request.DesiredDigest = &pb.ClusterRef{Uid: "cluster-1", Name: name}, fmt.Sprint("digest-", at)
		if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err != nil {
			t.Fatal(err)
		}
	}
	if len(cloud.names) != 1 || !cloud.names["first"] {
		t.Error(cloud.names)
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

// The interface stores no digest, and its names do not tell a former controller's balancers from ours.
func TestWhatTheInterfaceCannotExpressIsNotPromised(t *testing.T) {
	answer, err := pb.NewCloudProviderClient(serve(t, newer())).GetCapabilities(soon(t), &pb.GetCapabilitiesRequest{})
	for _, one := range []pb.Capability{pb.Capability_CAPABILITY_DURABLE_DIGEST, pb.Capability_CAPABILITY_ADOPTION} {
		if err != nil || slices.Contains(answer.GetCapabilities(), one) {
			t.Error(one, answer, err)
		}
	}
}
