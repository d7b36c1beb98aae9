package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/bridge"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
)

func service(uid string) *pb.Service {
	return &pb.Service{
		Ref:         &pb.ServiceRef{Namespace: "default", Name: "web", Uid: uid},
		Annotations: map[string]string{"fake/size": "large"},
		Ports: []*pb.ServicePort{{
			Name: "http", Protocol: pb.Protocol_PROTOCOL_TCP, Port: 80, NodePort: 30080, AppProtocol: "http",
			TargetPort: &pb.ServicePort_TargetPortName{TargetPortName: "web"},
		}},
		LoadBalancerClass: "fake/class", SourceRanges: []string{"10.0.0.0/8"}, ClusterIps: []string{"10.9.0.1"},
		IpFamilies:            []pb.IpFamily{pb.IpFamily_IP_FAMILY_IPV4, pb.IpFamily_IP_FAMILY_IPV6},
		IpFamilyPolicy:        pb.IpFamilyPolicy_IP_FAMILY_POLICY_REQUIRE_DUAL_STACK,
		ExternalTrafficPolicy: pb.TrafficPolicy_TRAFFIC_POLICY_LOCAL, HealthCheckNodePort: 30999,
		ClientIpAffinity: durationpb.New(90 * time.Second), AllocateNodePorts: proto.Bool(false),
	}
}

func ensureRequest(uid string) *pb.EnsureLoadBalancerRequest {
	return &pb.EnsureLoadBalancerRequest{
		Cluster: clusterRef(), Fencing: &pb.Fencing{}, Service: service(uid), DesiredDigest: "digest-1",
		Backends: &pb.BackendSet{Nodes: []*pb.NodeRef{{Name: "a"}, {Name: "b"}}},
	}
}

func deleteRequest(uid string) *pb.DeleteLoadBalancerRequest {
	return &pb.DeleteLoadBalancerRequest{Cluster: clusterRef(), Fencing: &pb.Fencing{}, Service: service(uid).GetRef()}
}

func updateRequest(items ...*pb.LoadBalancerUpdate) *pb.BatchUpdateLoadBalancersRequest {
	return &pb.BatchUpdateLoadBalancersRequest{
		Cluster: clusterRef(), Fencing: &pb.Fencing{}, Items: items,
		Backends: &pb.BackendSet{Nodes: []*pb.NodeRef{{Name: "c"}}},
	}
}

// update returns the outcome for each Service.
func update(t *testing.T, client pb.LoadBalancersClient, ctx context.Context, items ...*pb.LoadBalancerUpdate) map[string]*pb.LoadBalancerUpdateResult {
	t.Helper()
	answer, err := client.BatchUpdateLoadBalancers(ctx, updateRequest(items...))
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]*pb.LoadBalancerUpdateResult{}
	for _, result := range answer.GetResults() {
		results[result.GetServiceUid()] = result
	}
	return results
}

func TestServicesAreTranslated(t *testing.T) {
	cloud := newer()
	cloud.ensure = func(_ context.Context, got *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
		spec := got.Spec
		if got.UID != "s" || got.Annotations["fake/size"] != "large" || spec.Type != v1.ServiceTypeLoadBalancer ||
			spec.Ports[0].TargetPort.StrVal != "web" || spec.Ports[0].Protocol != v1.ProtocolTCP || *spec.Ports[0].AppProtocol != "http" ||
			*spec.LoadBalancerClass != "fake/class" || spec.LoadBalancerSourceRanges[0] != "10.0.0.0/8" || spec.ClusterIP != "10.9.0.1" ||
			len(spec.IPFamilies) != 2 || *spec.IPFamilyPolicy != v1.IPFamilyPolicyRequireDualStack ||
			spec.ExternalTrafficPolicy != v1.ServiceExternalTrafficPolicyLocal || spec.HealthCheckNodePort != 30999 ||
			*spec.InternalTrafficPolicy != v1.ServiceInternalTrafficPolicyCluster || *spec.AllocateLoadBalancerNodePorts ||
			*spec.SessionAffinityConfig.ClientIP.TimeoutSeconds != 90 || len(nodes) != 2 || nodes[1].Name != "b" ||
			!slices.Equal(got.Finalizers, []string{"a.example/held", "service.kubernetes.io/load-balancer-cleanup"}) || got.DeletionTimestamp == nil {
			return nil, fmt.Errorf("the Service is %+v with %d nodes", got, len(nodes))
		}
		proxy := v1.LoadBalancerIPModeProxy
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{
			{IP: "192.0.2.1", IPMode: &proxy, Ports: []v1.PortStatus{{Port: 80, Protocol: v1.ProtocolTCP}}}, {}, {Hostname: "lb.example"},
		}}, nil
	}
	request := ensureRequest("s")
	request.Service.Finalizers, request.Service.DeletionTime = []string{"a.example/held"}, timestamppb.Now()
	answer, err := pb.NewLoadBalancersClient(serve(t, cloud)).EnsureLoadBalancer(soon(t), request)
	if err != nil {
		t.Fatal(err)
	}
	got := answer.GetLoadBalancer()
	if len(got.GetIngress()) != 2 || got.GetIngress()[0].GetIpMode() != pb.IngressIpMode_INGRESS_IP_MODE_PROXY ||
		got.GetIngress()[0].GetPorts()[0].GetProtocol() != pb.Protocol_PROTOCOL_TCP || got.GetIngress()[1].GetHostname() != "lb.example" ||
		got.GetAppliedDigest() != "digest-1" || got.GetName() != "as" || got.GetState() != pb.LoadBalancerState_LOAD_BALANCER_STATE_ACTIVE {
		t.Errorf("got %v", got)
	}
}

func TestWhatAnEnsureAnswers(t *testing.T) {
	for name, row := range map[string]struct {
		ensure   func() (*v1.LoadBalancerStatus, error)
		code     codes.Code
		reason   pb.ErrorReason
		progress time.Duration
	}{
		"takes time": {func() (*v1.LoadBalancerStatus, error) {
			return nil, fmt.Errorf("ensuring: %w", api.NewRetryError("being made", 7*time.Second))
		}, 0, 0, 7 * time.Second},
		"elsewhere": {func() (*v1.LoadBalancerStatus, error) { return nil, cloudprovider.ImplementedElsewhere },
			codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_IMPLEMENTED_ELSEWHERE, 0},
		"not implemented for this one": {func() (*v1.LoadBalancerStatus, error) { return nil, cloudprovider.NotImplemented },
			codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_UNSUPPORTED_FEATURE, 0},
		"nil":    {func() (*v1.LoadBalancerStatus, error) { return nil, nil }, codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, 0},
		"panic":  {func() (*v1.LoadBalancerStatus, error) { panic("x") }, codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, 0},
		"failed": {func() (*v1.LoadBalancerStatus, error) { return nil, errors.New("500") }, codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, 0},
		"typed": {func() (*v1.LoadBalancerStatus, error) { return nil, fault.QuotaExceeded("account", "balancers") },
			codes.ResourceExhausted, pb.ErrorReason_ERROR_REASON_QUOTA_EXCEEDED, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := newer()
			cloud.ensure = func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) { return row.ensure() }
			client := pb.NewLoadBalancersClient(serve(t, cloud))
			answer, err := client.EnsureLoadBalancer(soon(t), ensureRequest("s"))
			if row.code != codes.OK {
				expect(t, err, row.code, row.reason)
			} else if err != nil || answer.GetInProgress().GetRetryAfter().AsDuration() != row.progress || answer.GetLoadBalancer().GetAppliedDigest() != "" {
				t.Error(answer, err)
			}
			// What was not applied is not reported as applied, nor updated.
			list, err := client.ListLoadBalancers(soon(t), &pb.ListLoadBalancersRequest{Cluster: clusterRef()})
			if err != nil || len(list.GetLoadBalancers()) != 0 {
				t.Error(list, err)
			}
		})
	}
}

func TestAnUpdateReplacesBackendsOnly(t *testing.T) {
	var updated atomic.Int32
	cloud := newer()
	cloud.stands = func(service *v1.Service) bool { return service.UID != "new" }
	cloud.update = func(_ context.Context, got *v1.Service, nodes []*v1.Node) error {
		updated.Add(1)
		if len(nodes) != 1 || nodes[0].Name != "c" {
			return fmt.Errorf("the nodes are %v", nodes)
		}
		if port := got.Spec.Ports[0].Port; port != 80 {
			return fmt.Errorf("the port is %d, which was never applied", port)
		}
		switch got.UID {
		case "slow":
			return api.NewRetryError("later", 3*time.Second)
		case "failing":
			return errors.New("500")
		}
		return nil
	}
	client := pb.NewLoadBalancersClient(serve(t, cloud))
	uids := []string{"fine", "slow", "failing", "changed"}
	for _, uid := range uids {
		if _, err := client.EnsureLoadBalancer(soon(t), ensureRequest(uid)); err != nil {
			t.Fatal(err)
		}
	}
	var items []*pb.LoadBalancerUpdate
	for _, uid := range append(uids, "new") {
		wanted := service(uid)
		wanted.Ingress = []*pb.LoadBalancerIngress{{Ip: "192.0.2.1"}} // The status is not part of the wanted state.
		if uid == "changed" {
			wanted.Ports[0].Port = 81
		}
		items = append(items, &pb.LoadBalancerUpdate{Service: wanted, DesiredDigest: "digest-2"})
	}
	results := update(t, client, soon(t), items...)
	if results["fine"].GetOutcome() != pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED ||
		results["slow"].GetInProgress().GetRetryAfter().AsDuration() != 3*time.Second ||
		results["failing"].GetError().GetReason() != pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR ||
		results["changed"].GetOutcome() != pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED ||
		results["new"].GetError().GetReason() != pb.ErrorReason_ERROR_REASON_NEEDS_ENSURE || updated.Load() != 4 {
		t.Errorf("got %v after %d updates", results, updated.Load())
	}
	next := &pb.ListLoadBalancersRequest{Cluster: clusterRef(), PageSize: 3}
	digests := map[string]string{}
	for first := true; first || next.PageToken != ""; first = false {
		page, err := client.ListLoadBalancers(soon(t), next)
		if err != nil || len(page.GetUnreachable()) != 1 {
			t.Fatal(page, err)
		}
		for _, one := range page.GetLoadBalancers() {
			digests[one.GetService().GetUid()] = one.GetAppliedDigest()
		}
		next.PageToken = page.GetNextPageToken()
	}
	if want := map[string]string{"changed": "digest-2", "failing": "", "fine": "digest-2", "slow": ""}; !maps.Equal(digests, want) {
		t.Error(digests)
	}
	next.PageToken = "garbage"
	_, err := client.ListLoadBalancers(soon(t), next)
	expect(t, err, codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_INVALID_TOKEN)
}

func TestADeleteWorksFromItsKeyAlone(t *testing.T) {
	for name, row := range map[string]struct {
		err      error
		code     codes.Code
		progress time.Duration
	}{
		"gone": {nil, codes.OK, 0}, "elsewhere": {cloudprovider.ImplementedElsewhere, codes.OK, 0},
		"takes time": {api.NewRetryError("x", 4*time.Second), codes.OK, 4 * time.Second}, "failed": {errors.New("500"), codes.Internal, 0},
		"not implemented for this one": {cloudprovider.NotImplemented, codes.Internal, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := newer()
			cloud.remove = func(_ context.Context, got *v1.Service) error {
				if got.UID != "s" || got.Name != "web" || got.Spec.Type != v1.ServiceTypeLoadBalancer {
					return fmt.Errorf("the Service is %+v", got)
				}
				return row.err
			}
			answer, err := pb.NewLoadBalancersClient(serve(t, cloud)).DeleteLoadBalancer(soon(t), deleteRequest("s"))
			if row.code != codes.OK {
				expect(t, err, row.code, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR)
			} else if err != nil || answer.GetInProgress().GetRetryAfter().AsDuration() != row.progress {
				t.Error(answer, err)
			}
		})
	}
}

// linode, for one, finds its balancer by the Service's status, which may not be written yet when the Service is deleted.
func TestADeleteKnowsTheAddressThatNobodyHasWritten(t *testing.T) {
	real := newRealAPI(t)
	set(t, real, "services", &v1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "s"},
	})
	for name, options := range map[string][]bridge.Option{"private": nil, "real": {bridge.WithKubernetes(real.Config())}} {
		for _, hint := range []*pb.Service{nil, service("s")} {
			cloud, removed := newer(), ""
			cloud.remove = func(_ context.Context, got *v1.Service) error {
				for _, one := range got.Status.LoadBalancer.Ingress {
					removed += one.IP
				}
				return nil
			}
			conn := serve(t, cloud, options...)
			ensured(t, conn, ensureRequest("s"))
			gone := deleteRequest("s")
			gone.LastKnown = hint
			if _, err := pb.NewLoadBalancersClient(conn).DeleteLoadBalancer(soon(t), gone); err != nil || removed != "192.0.2.1" {
				t.Errorf("%s, %v: removed %q, %v", name, hint, removed, err)
			}
		}
	}
}

// Old providers were never called concurrently for one Service.
func TestMutationsOfOneServiceQueue(t *testing.T) {
	var now, most atomic.Int32
	cloud := newer()
	cloud.ensure = func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		time.Sleep(2 * time.Millisecond)
		return &v1.LoadBalancerStatus{}, nil
	}
	client := pb.NewLoadBalancersClient(serve(t, cloud))
	errs := make(chan error)
	for range 8 {
		go func() {
			_, err := client.EnsureLoadBalancer(soon(t), ensureRequest("s"))
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if most.Load() != 1 {
		t.Errorf("%d at once", most.Load())
	}
}

func TestABalancerIsReadByItsName(t *testing.T) {
	cloud := newer()
	client := pb.NewLoadBalancersClient(serve(t, cloud))
	get := func() *pb.LoadBalancer {
		answer, err := client.GetLoadBalancer(soon(t), &pb.GetLoadBalancerRequest{Cluster: clusterRef(), Service: service("s").GetRef()})
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetLoadBalancer()
	}
	if got := get(); got.GetState() != pb.LoadBalancerState_LOAD_BALANCER_STATE_ABSENT {
		t.Errorf("got %v", got)
	}
	cloud.Exists = true
	if got := get(); got.GetOwnership() != pb.Ownership_OWNERSHIP_BY_LEGACY_NAME || got.GetAppliedDigest() != "" {
		t.Errorf("got %v", got)
	}
	if _, err := client.EnsureLoadBalancer(soon(t), ensureRequest("s")); err != nil {
		t.Fatal(err)
	}
	if got := get(); got.GetOwnership() != pb.Ownership_OWNERSHIP_BY_UID || got.GetAppliedDigest() != "digest-1" {
		t.Errorf("got %v", got)
	}
	cloud.Err = cloudprovider.NotImplemented
	_, err := client.GetLoadBalancer(soon(t), &pb.GetLoadBalancerRequest{Cluster: clusterRef(), Service: service("s").GetRef()})
	expect(t, err, codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_UNSUPPORTED_FEATURE)
}

// crowd counts calls that run at once.
type crowd struct {
	running, most atomic.Int32
	// met is closed once two have met.
	met  chan struct{}
	once sync.Once
}

// busy lasts until another call runs, and a little longer, so that too many would meet.
func (c *crowd) busy() {
	now := c.running.Add(1)
	for seen := c.most.Load(); now > seen && !c.most.CompareAndSwap(seen, now); seen = c.most.Load() {
	}
	if now > 1 {
		c.once.Do(func() { close(c.met) })
	}
	select {
	case <-c.met:
	case <-time.After(patience / 2):
	}
	time.Sleep(2 * time.Millisecond)
	c.running.Add(-1)
}

// D7: what vendors share between Services has mostly run one call at a time; over all batches and single calls, no more
// run at once than allowed.
func TestNoMoreBalancersAreChangedAtOnceThanAllowed(t *testing.T) {
	changed, updated := crowd{met: make(chan struct{})}, crowd{met: make(chan struct{})}
	cloud := newer()
	cloud.ensure = func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
		changed.busy()
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.9"}}}, nil
	}
	cloud.update = func(context.Context, *v1.Service, []*v1.Node) error { updated.busy(); return nil }
	cloud.remove = func(context.Context, *v1.Service) error { changed.busy(); return nil }
	conn := serve(t, cloud, bridge.WithConcurrency(2), bridge.WithPatience(10*patience))
	client := pb.NewLoadBalancersClient(conn)
	var calls sync.WaitGroup
	for i := range 20 {
		calls.Go(func() {
			if _, err := client.EnsureLoadBalancer(soon(t), ensureRequest(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	for batch := range 5 {
		calls.Go(func() {
			var items []*pb.LoadBalancerUpdate
			for i := range 3 {
				items = append(items, &pb.LoadBalancerUpdate{Service: service(fmt.Sprint(3*batch + i)), DesiredDigest: "digest-2"})
			}
			for uid, result := range update(t, client, soon(t), items...) {
				if result.GetOutcome() != pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED {
					t.Error(uid, result)
				}
			}
		})
	}
	for i := range 5 {
		calls.Go(func() {
			if _, err := client.DeleteLoadBalancer(soon(t), deleteRequest(fmt.Sprint(15+i))); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if changed, updated := changed.most.Load(), updated.most.Load(); changed != 2 || updated != 2 {
		t.Errorf("%d balancers were changed at once, and %d got nodes, want 2 of each", changed, updated)
	}
	told, err := pb.NewCloudProviderClient(conn).GetCapabilities(soon(t), &pb.GetCapabilitiesRequest{})
	if err != nil || told.GetLimits().GetMaxConcurrentMutations() != 4 {
		t.Error("want one more for routes, and one for nodes", told.GetLimits(), err)
	}
}

// T4: balancers that hang keep no other one from its nodes, also where the provider makes one at a time.
func TestNodesDoNotWaitForBalancersThatHang(t *testing.T) {
	cloud := newer()
	conn := serve(t, cloud, bridge.WithConcurrency(1))
	client := pb.NewLoadBalancersClient(conn)
	if _, err := client.EnsureLoadBalancer(soon(t), ensureRequest("there")); err != nil {
		t.Fatal(err)
	}
	hangs, release := make(chan struct{}, 1), make(chan struct{})
	cloud.ensure = func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
		hangs <- struct{}{}
		<-release
		return &v1.LoadBalancerStatus{}, nil
	}
	ctx, done := context.WithCancel(soon(t))
	var calls sync.WaitGroup
	for i := range 2 {
		calls.Go(func() { _, _ = client.EnsureLoadBalancer(ctx, ensureRequest(fmt.Sprint("new", i))) })
	}
	<-hangs
	item := &pb.LoadBalancerUpdate{Service: service("there"), DesiredDigest: "digest-2"}
	if result := update(t, client, soon(t), item)["there"]; result.GetOutcome() != pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED {
		t.Error(result)
	}
	done()
	close(release)
	calls.Wait()
}

// vultr, for one, tries an edit again in the background, and says that it is done.
func TestWhatAProviderLeavesRunningGoesOn(t *testing.T) {
	cloud, ended := newer(), make(chan error, 1)
	cloud.ensure = func(ctx context.Context, _ *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
		go func() {
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
			ended <- ctx.Err()
		}()
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.9"}}}, nil
	}
	if _, err := pb.NewLoadBalancersClient(serve(t, cloud)).EnsureLoadBalancer(soon(t), ensureRequest("a")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error("the context of what goes on ended with the call:", err)
	}
}

// kube-vip returns the status that it was given, whose addresses somebody else writes.
func TestAStatusThatIsPassedOnIsNotKept(t *testing.T) {
	cloud := newer()
	cloud.ensure = func(_ context.Context, service *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
		return &service.Status.LoadBalancer, nil
	}
	conn := serve(t, cloud)
	client := pb.NewLoadBalancersClient(conn)
	request := ensureRequest("a")
	request.Service.Ingress = []*pb.LoadBalancerIngress{{Ip: "192.0.2.77"}}
	answer, err := client.EnsureLoadBalancer(soon(t), request)
	if err != nil || len(answer.GetLoadBalancer().GetIngress()) != 1 {
		t.Fatal(answer, err)
	}
	list, err := client.ListLoadBalancers(soon(t), &pb.ListLoadBalancersRequest{Cluster: clusterRef()})
	if err != nil || len(list.GetLoadBalancers()) != 1 || len(list.GetLoadBalancers()[0].GetIngress()) != 0 {
		t.Error(list, err)
	}
}

// Some providers refuse ranges in both places, and some look in the spec alone.
func TestRangesOfTheAnnotationAreNotInTheSpec(t *testing.T) {
	cloud := newer()
	var ranges []string
	cloud.ensure = func(_ context.Context, service *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
		ranges = service.Spec.LoadBalancerSourceRanges
		return &v1.LoadBalancerStatus{}, nil
	}
	client := pb.NewLoadBalancersClient(serve(t, cloud))
	for at, row := range []struct {
		annotation string
		annotated  bool
		sent, want []string
	}{
		{"", false, []string{"10.0.0.0/8"}, []string{"10.0.0.0/8"}},
		{"192.0.2.7/24, 10.0.0.0/8", true, []string{"10.0.0.0/8", "192.0.2.0/24"}, nil},
		{"10.0.0.0/8", false, []string{"10.0.0.0/8"}, []string{"10.0.0.0/8"}},
		{"192.0.2.0/24", false, []string{"10.0.0.0/8"}, []string{"10.0.0.0/8"}},
	} {
		request := ensureRequest(fmt.Sprint(at))
		request.Service.SourceRanges, request.Service.SourceRangesAreAnnotated = row.sent, row.annotated
		request.Service.Annotations = map[string]string{v1.AnnotationLoadBalancerSourceRangesKey: row.annotation}
		if _, err := client.EnsureLoadBalancer(soon(t), request); err != nil || !slices.Equal(ranges, row.want) {
			t.Error(row, ranges, err)
		}
	}
}
