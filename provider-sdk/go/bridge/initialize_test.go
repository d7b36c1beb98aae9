package bridge_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/bridge"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// informed is a provider that waits for the API, as some do.
type informed struct {
	*cloud
	client      kubernetes.Interface
	nodes       listers.NodeLister
	initialized int
	panics      bool
	ended       <-chan struct{}
}

func (i *informed) Initialize(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	if i.panics {
		panic("no clients")
	}
	if clients != nil {
		i.client = clients.ClientOrDie("informed")
	}
	i.initialized++
	i.ended = stop
}

func (i *informed) SetInformers(shared informers.SharedInformerFactory) {
	i.nodes = shared.Core().V1().Nodes().Lister()
}

func TestAProviderGetsItsClientsAndInformersFirst(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	shared := informers.NewSharedInformerFactory(fake.NewClientset(node), 0)
	stop := make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		shared.Shutdown()
	})
	cloud := &informed{cloud: newer()}
	if _, err := bridge.New(cloud, bridge.WithInitializeAtStart(true), bridge.WithInitialize(nil, shared, stop)); err != nil {
		t.Fatal(err)
	}
	if _, err := cloud.nodes.Get("a"); err != nil || cloud.initialized != 1 {
		t.Errorf("%v, initialized %d times", err, cloud.initialized)
	}
	cloud.panics = true
	_, err := bridge.New(cloud, bridge.WithInitializeAtStart(true), bridge.WithInitialize(nil, shared, stop))
	if err == nil || !strings.Contains(err.Error(), "cannot be initialized") {
		t.Error(err)
	}
}

// A legacy provider that looks up nodes in its informer finds those that it is asked about, without any Kubernetes.
func TestInformersAreFedFromTheNodesThatTheHostSends(t *testing.T) {
	cloud := &informed{cloud: newer()}
	cloud.exists = func(_ context.Context, node *v1.Node) (bool, error) {
		known, err := cloud.nodes.Get(node.Name)
		if err != nil {
			return false, err
		}
		if known.Labels["zone"] != node.Labels["zone"] || known.UID != node.UID {
			return false, fmt.Errorf("the informer has %v of %s, asked is %v", known.Labels, known.UID, node.Labels)
		}
		return true, nil
	}
	instances := pb.NewInstancesClient(serve(t, cloud))
	for _, row := range []struct{ uid, zone string }{{"1", "a"}, {"1", "b"}, {"2", "b"}} {
		request := &pb.BatchGetInstancesRequest{Cluster: clusterRef()}
		for i := range 50 {
			name := fmt.Sprint("node-", i)
			request.Queries = append(request.Queries, &pb.InstanceQuery{Key: name, Node: &pb.NodeRef{
				Name: name, Uid: row.uid + name, ProviderId: "fake://" + name, Labels: map[string]string{"zone": row.zone},
			}})
		}
		answer, err := instances.BatchGetInstances(soon(t), request)
		if err != nil {
			t.Fatal(err)
		}
		for _, result := range answer.GetResults() {
			if result.GetState() != pb.InstanceState_INSTANCE_STATE_RUNNING {
				t.Fatalf("%v: %v", row, result)
			}
		}
	}
	nodes, err := cloud.client.CoreV1().Nodes().List(soon(t), metav1.ListOptions{LabelSelector: "zone=b"})
	if err != nil || len(nodes.Items) != 50 {
		t.Errorf("%d nodes, %v", len(nodes.Items), err)
	}
}

// routing looks up the targets of routes in its informer.
type routing struct{ *informed }

func (r routing) Routes() (cloudprovider.Routes, bool) { return r, true }

func (r routing) CreateRoute(ctx context.Context, cluster, hint string, route *cloudprovider.Route) error {
	if _, err := r.nodes.Get(string(route.TargetNode)); err != nil {
		return err
	}
	return r.informed.CreateRoute(ctx, cluster, hint, route)
}

func TestInformersAreFedFromTheTargetsOfRoutes(t *testing.T) {
	routes := pb.NewRoutesClient(serve(t, routing{&informed{cloud: routed()}}))

	results := ensureRoutes(t, routes, item("a", "node-a", "10.0.1.0/24"))

	if results["a"].GetRoute().GetTarget().GetName() != "node-a" {
		t.Error(results["a"])
	}
}

// The private API says what it cannot give, and nothing is written behind the host's back.
func TestThePrivateAPIForbidsWritesAndSaysTheRemedy(t *testing.T) {
	cloud := &informed{cloud: newer()}
	balancers := pb.NewLoadBalancersClient(serve(t, cloud))
	request := ensureRequest("uid-web")
	if _, err := balancers.EnsureLoadBalancer(soon(t), request); err != nil {
		t.Fatal(err)
	}
	services := cloud.client.CoreV1().Services("default")
	if service, err := services.Get(soon(t), "web", metav1.GetOptions{}); err != nil || service.UID != types.UID("uid-web") {
		t.Errorf("%v %v", service, err)
	}
	_, err := services.Patch(soon(t), "web", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Error(err)
	}
	event := &v1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default"}, Reason: "Made"}
	if made, err := cloud.client.CoreV1().Events("default").Create(soon(t), event, metav1.CreateOptions{}); err != nil || made.Reason != "Made" {
		t.Errorf("%v %v", made, err)
	}
	if _, err := cloud.client.CoreV1().Nodes().Get(soon(t), "stranger", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if _, err := balancers.DeleteLoadBalancer(soon(t), &pb.DeleteLoadBalancerRequest{
		Cluster: clusterRef(), Fencing: &pb.Fencing{}, Service: request.GetService().GetRef(),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := services.Get(soon(t), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

func TestWhatAProviderStartedEndsWithIt(t *testing.T) {
	cloud := &informed{cloud: newer()}
	provider, err := bridge.New(cloud, bridge.WithInitializeAtStart(true))
	if err != nil {
		t.Fatal(err)
	}
	provider.Stop()
	select {
	case <-cloud.ended:
	case <-time.After(patience):
		t.Error("the provider was not told to stop")
	}
}

// The balancer of a Service that is gone may be deleted long after a new Service has its name. The provider sees the new one
// all the time.
func TestTheDeleteOfAFormerServiceHidesNoNewOne(t *testing.T) {
	for former, now := range map[string]string{"1": "2", "2": "1"} {
		cloud := &informed{cloud: newer()}
		seen := func(when string) {
			t.Helper()
			list, err := cloud.client.CoreV1().Services("").List(soon(t), metav1.ListOptions{})
			if err != nil || len(list.Items) != 1 || string(list.Items[0].UID) != now {
				t.Errorf("%s, with %s for %s: %v %v", when, now, former, list.Items, err)
			}
		}
		client := pb.NewLoadBalancersClient(serve(t, cloud))
		ensure := func(uid string, created int64) error {
			request := ensureRequest(uid)
			request.Service.CreationTime = &timestamppb.Timestamp{Seconds: created}
			_, err := client.EnsureLoadBalancer(soon(t), request)
			return err
		}
		cloud.ensure = func(_ context.Context, service *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
			if string(service.UID) == now {
				return &v1.LoadBalancerStatus{}, nil
			}
			return &v1.LoadBalancerStatus{}, ensure(now, 2000)
		}
		if err := ensure(former, 1000); err != nil {
			t.Fatal(err)
		}
		seen("after an Ensure that outlasted its Service")
		removed := ""
		cloud.remove = func(_ context.Context, service *v1.Service) error {
			seen("during the delete")
			removed += string(service.UID)
			return nil
		}
		if _, err := client.DeleteLoadBalancer(soon(t), deleteRequest(former)); err != nil || removed != former {
			t.Error(removed, err)
		}
		seen("after the delete")
		if _, err := client.DeleteLoadBalancer(soon(t), deleteRequest(now)); err != nil {
			t.Error(err)
		}
		if list, err := cloud.client.CoreV1().Services("").List(soon(t), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
			t.Error(list, err)
		}
	}
}

// hasty dereferences in Routes what only Initialize sets.
type hasty struct {
	*cloud
	client *string
}

func (h *hasty) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {
	h.client = new("a client")
}

func (h *hasty) Routes() (cloudprovider.Routes, bool) { return h, *h.client != "" }

func TestAProviderThatKnowsItsPartsOnlyOnceInitialized(t *testing.T) {
	_, err := bridge.New(&hasty{cloud: newer()}, bridge.WithRouteNodeAddresses())
	if err == nil || !strings.Contains(err.Error(), "--initialize-at-start") {
		t.Error(err)
	}
	if _, err := bridge.New(&hasty{cloud: newer()}, bridge.WithRouteNodeAddresses(), bridge.WithInitializeAtStart(true)); err != nil {
		t.Error(err)
	}
}
