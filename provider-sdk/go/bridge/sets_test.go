package bridge_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/bridge"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
)

func workers(count int) *pb.BackendSet {
	set := &pb.BackendSet{Digest: fmt.Sprint("set-", count)}
	for i := range count {
		set.Nodes = append(set.Nodes, &pb.NodeRef{
			Name: fmt.Sprint("worker-", i), Uid: fmt.Sprintf("6f1c1f9e-3f0f-4c70-9d1e-%012d", i), ProviderId: fmt.Sprintf("fake:///zone-a/i-%017d", i),
			SystemUuid: fmt.Sprintf("8f1c1f9e-3f0f-4c70-9d1e-%012d", i), ProvidedNodeIps: []string{"10.0.0.1"}, PodCidrs: []string{"10.1.0.0/24"},
			Addresses: []*pb.NodeAddress{
				{Type: pb.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP, Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250)},
				{Type: pb.NodeAddressType_NODE_ADDRESS_TYPE_HOSTNAME, Address: fmt.Sprint("worker-", i)},
			},
			Labels: map[string]string{"topology.kubernetes.io/zone": "zone-a", "kubernetes.io/os": "linux"},
		})
	}
	return set
}

// BenchmarkEnsures measures the CPU time of 100 Services that are created at once on 2,000 nodes: over a socket, with a
// provider that has an informer of nodes.
func BenchmarkEnsures(b *testing.B) {
	cloud := &informed{cloud: newer()}
	conn := serve(b, cloud)
	balancers := pb.NewLoadBalancersClient(conn)
	set := workers(2000)
	ensure := func(uid string) {
		request := ensureRequest(uid)
		request.Service.Ref.Name = uid
		request.Backends = set
		answer, err := balancers.EnsureLoadBalancer(context.Background(), request)
		if err != nil || answer.GetInProgress() != nil {
			b.Fatal(answer, err)
		}
		set = &pb.BackendSet{Digest: set.GetDigest(), NodesOmitted: true} // From then on the host sends it so.
	}
	rounds := 0
	before := processorTime(b)
	for b.Loop() {
		for i := range 100 {
			ensure(fmt.Sprint("s", rounds, "-", i))
		}
		rounds++
	}
	b.ReportMetric((processorTime(b)-before).Seconds()/float64(rounds), "cpu-s/100-ensures")
}

func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// A digest names a set. A false one does not give a balancer the wrong nodes, and changes of a node are noticed.
func TestASetIsKnownByItsDigest(t *testing.T) {
	cloud, seen := newer(), ""
	cloud.ensure = func(_ context.Context, _ *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
		seen = ""
		for _, node := range nodes {
			seen += node.Name + "=" + node.Labels["topology.kubernetes.io/zone"] + node.Spec.ProviderID + " "
		}
		slices.Reverse(nodes) // The provider owns the slice.
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}}, nil
	}
	conn := serve(t, cloud)
	node := func(name, zone, id string) *pb.NodeRef {
		return &pb.NodeRef{Name: name, Uid: name, ProviderId: id, Labels: map[string]string{"topology.kubernetes.io/zone": zone}}
	}
	for _, row := range []struct {
		set  *pb.BackendSet
		want string
	}{
		{&pb.BackendSet{Digest: "1", Nodes: []*pb.NodeRef{node("a", "x", ""), node("b", "x", "")}}, "a=x b=x "},
		{&pb.BackendSet{Digest: "1", Nodes: []*pb.NodeRef{node("a", "x", ""), node("b", "x", "")}}, "a=x b=x "},
		{&pb.BackendSet{Digest: "1", Nodes: []*pb.NodeRef{node("a", "x", "")}}, "a=x "},
		{&pb.BackendSet{Digest: "2", Nodes: []*pb.NodeRef{node("a", "y", "fake://a"), node("b", "x", "")}}, "a=yfake://a b=x "},
		{&pb.BackendSet{Nodes: []*pb.NodeRef{node("b", "z", "")}}, "b=z "},
		{&pb.BackendSet{Digest: "2", NodesOmitted: true}, "a=yfake://a b=x "},
	} {
		request := ensureRequest("s")
		request.Backends = row.set
		if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err != nil || seen != row.want {
			t.Errorf("%v: %q %v", row.set, seen, err)
		}
	}
}

// A node's own state reaches the provider: as of the last query about its instance, or with each set.
func TestTheStateOfANodeIsKnown(t *testing.T) {
	const drain = "x.example/drain"
	for _, row := range []struct {
		options []bridge.Option
		ensured *pb.NodeRef
		want    string
	}{
		{nil, &pb.NodeRef{Name: "a", Uid: "a"}, "cordoned True x.example/drain NoExecute going"},
		{[]bridge.Option{bridge.WithBackendNodeState()}, &pb.NodeRef{Name: "a", Uid: "a", Readiness: pb.NodeReadiness_NODE_READINESS_NOT_READY}, "False going"},
	} {
		cloud, seen := newer(), ""
		cloud.ensure = func(_ context.Context, _ *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
			seen = state(nodes[0])
			return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}}, nil
		}
		conn := serve(t, cloud, row.options...)
		told := &pb.NodeRef{
			Name: "a", Uid: "a", Unschedulable: true, Readiness: pb.NodeReadiness_NODE_READINESS_READY, DeletionTime: timestamppb.Now(),
			Taints: []*pb.NodeTaint{{Key: drain, Effect: pb.TaintEffect_TAINT_EFFECT_NO_EXECUTE}},
		}
		row.ensured.DeletionTime = told.DeletionTime
		if _, err := pb.NewInstancesClient(conn).BatchGetInstances(soon(t), batch(told)); err != nil {
			t.Fatal(err)
		}
		request := ensureRequest("s")
		request.Backends = &pb.BackendSet{Nodes: []*pb.NodeRef{row.ensured}}
		if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err != nil || seen != row.want {
			t.Errorf("%q, want %q: %v", seen, row.want, err)
		}
	}
}

// state describes a node's own state in words.
func state(node *v1.Node) string {
	var words []string
	if node.Spec.Unschedulable {
		words = append(words, "cordoned")
	}
	for _, condition := range node.Status.Conditions {
		words = append(words, string(condition.Status))
	}
	for _, taint := range node.Spec.Taints {
		words = append(words, taint.Key, string(taint.Effect))
	}
	if node.DeletionTimestamp != nil {
		words = append(words, "going")
	}
	return strings.Join(words, " ")
}

// S12: the bridge does not ask for labels of backends that say nothing of an instance's place or kind, yet the provider knows them.
func TestBackendsKeepWhatIsKnownOfTheirMachines(t *testing.T) {
	cloud, labels := newer(), map[string]string{}
	cloud.ensure = func(_ context.Context, _ *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
		labels = nodes[0].Labels
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}}, nil
	}
	conn := serve(t, cloud)
	capabilities, err := pb.NewCloudProviderClient(conn).GetCapabilities(soon(t), &pb.GetCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	wanted := capabilities.GetWants().GetBackend().GetLabels()
	if slices.Contains(wanted, "*") || !slices.Contains(wanted, "topology.kubernetes.io/") {
		t.Error(wanted)
	}
	told := &pb.NodeRef{Name: "a", Uid: "a", Labels: map[string]string{"pool": "blue", "topology.kubernetes.io/zone": "x", "node.kubernetes.io/old": "1"}}
	if _, err := pb.NewInstancesClient(conn).BatchGetInstances(soon(t), batch(told)); err != nil {
		t.Fatal(err)
	}
	request := ensureRequest("s")
	request.Backends = &pb.BackendSet{Digest: "1", Nodes: []*pb.NodeRef{{Name: "a", Uid: "a", Labels: map[string]string{"topology.kubernetes.io/zone": "y"}}}}
	if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err != nil {
		t.Fatal(err)
	}
	if labels["pool"] != "blue" || labels["topology.kubernetes.io/zone"] != "y" || labels["node.kubernetes.io/old"] != "" {
		t.Error(labels)
	}
	// Another node with the same name is another node.
	request.Backends = &pb.BackendSet{Digest: "2", Nodes: []*pb.NodeRef{{Name: "a", Uid: "b"}}}
	if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err != nil || len(labels) != 0 {
		t.Error(labels, err)
	}
}
