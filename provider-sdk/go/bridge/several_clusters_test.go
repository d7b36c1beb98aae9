package bridge_test

import (
	"context"
	"testing"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Two clusters may have a Service, and nodes, of the same names. The provider's informers show one object of a name: that of the
// cluster that it works for.
func TestOneClustersObjectsAreNotAnothers(t *testing.T) {
	cloud := routing{&informed{cloud: routed()}}
	labels := map[string]string{}
	cloud.ensure = func(_ context.Context, _ *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
		labels = nodes[0].Labels
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}}, nil
	}
	conn := serve(t, cloud)
	work := func(cluster string) {
		t.Helper()
		ref := &pb.ClusterRef{Uid: cluster}
		told := batch(&pb.NodeRef{Name: "node-a", Uid: cluster, ProviderId: "fake://" + cluster, Labels: map[string]string{"pool": cluster}})
		told.Cluster = ref
		if _, err := pb.NewInstancesClient(conn).BatchGetInstances(soon(t), told); err != nil {
			t.Fatal(err)
		}
		request := ensureRequest("service-of-" + cluster)
		request.Cluster = ref
		request.Backends = &pb.BackendSet{Digest: "1", Nodes: []*pb.NodeRef{{Name: "node-a", Uid: cluster, ProviderId: "fake://" + cluster}}}
		if ensured(t, conn, request); labels["pool"] != cluster {
			t.Errorf("the node of %s has %v", cluster, labels)
		}
	}
	work(clusterRef().GetUid())
	route := item("a", "node-a", "10.0.1.0/24")
	route.Target.Uid, route.Target.ProviderId = "cluster-1", "fake://cluster-1"
	if results := ensureRoutes(t, pb.NewRoutesClient(conn), route); results["a"].GetError() != nil {
		t.Fatal(results)
	}
	work("other")
	core := cloud.client.CoreV1()
	if service, err := core.Services("default").Get(soon(t), "web", metav1.GetOptions{}); err != nil || service.UID != "service-of-cluster-1" {
		t.Error(service, err)
	}
	if node, err := core.Nodes().Get(soon(t), "node-a", metav1.GetOptions{}); err != nil || node.UID != "cluster-1" {
		t.Error(node, err)
	}
	listed, err := pb.NewRoutesClient(conn).ListRoutes(soon(t), &pb.ListRoutesRequest{Cluster: clusterRef()})
	if err != nil || listed.GetRoutes()[0].GetTarget().GetProviderId() != "fake://cluster-1" {
		t.Error(listed, err)
	}
	made := batch(&pb.NodeRef{Name: "node-b", Uid: "first"})
	made.Cluster = &pb.ClusterRef{Uid: "other"}
	again := batch(&pb.NodeRef{Name: "node-b", Uid: "second"})
	again.Cluster = made.Cluster
	for _, told := range []*pb.BatchGetInstancesRequest{made, again} {
		if _, err := pb.NewInstancesClient(conn).BatchGetInstances(soon(t), told); err != nil {
			t.Fatal(err)
		}
	}
	if node, err := core.Nodes().Get(soon(t), "node-b", metav1.GetOptions{}); err != nil || node.UID != "second" {
		t.Error("a node that is made anew:", node, err)
	}
	request := ensureRequest("service-of-cluster-1")
	request.DesiredDigest = "digest-2"
	request.Backends = &pb.BackendSet{Digest: "1", NodesOmitted: true}
	if ensured(t, conn, request); labels["pool"] != "cluster-1" {
		t.Error("what is known of a node is lost:", labels)
	}
}
