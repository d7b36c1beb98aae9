package bridge_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"cloudprovider.ccm/sdk/bridge"
	"cloudprovider.ccm/sdk/bridge/examples/difficult/habits"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// withHabits is the difficult provider over the test's own directory.
func withHabits(t *testing.T, all ...habits.Habit) *habits.Cloud {
	t.Helper()
	cloud, err := habits.New(t.TempDir(), all...)
	if err != nil {
		t.Fatal(err)
	}
	return cloud
}

func requestNamed(uid, name string) *pb.EnsureLoadBalancerRequest {
	request := ensureRequest(uid)
	request.Service.Ref.Name = name
	return request
}

func ensured(t *testing.T, conn *grpc.ClientConn, request *pb.EnsureLoadBalancerRequest) *pb.EnsureLoadBalancerResponse {
	t.Helper()
	answer, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// V2: requests for unknown kinds are refused with the remedy, and never answered with an empty result.
func TestEmptyNeverMeansUnknown(t *testing.T) {
	cloud := withHabits(t)
	conn := serve(t, cloud)
	core := cloud.Client().CoreV1()
	for what, ask := range map[string]func() error{
		"list ConfigMaps": func() error { _, err := core.ConfigMaps("").List(soon(t), metav1.ListOptions{}); return err },
		"list Pods":       func() error { _, err := core.Pods("").List(soon(t), metav1.ListOptions{}); return err },
		"watch Secrets":   func() error { _, err := core.Secrets("").Watch(soon(t), metav1.ListOptions{}); return err },
		"get a Secret":    func() error { _, err := core.Secrets("x").Get(soon(t), "x", metav1.GetOptions{}); return err },
		"get a Lease": func() error {
			_, err := cloud.Client().CoordinationV1().Leases("x").Get(soon(t), "x", metav1.GetOptions{})
			return err
		},
		"make a ConfigMap": func() error {
			_, err := core.ConfigMaps("x").Create(soon(t), &v1.ConfigMap{}, metav1.CreateOptions{})
			return err
		},
		"patch a Node": func() error {
			_, err := core.Nodes().Patch(soon(t), "x", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			return err
		},
		"list Events": func() error { _, err := core.Events("").List(soon(t), metav1.ListOptions{}); return err },
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
			t.Errorf("%s: %v", what, err)
		}
	}
	ensured(t, conn, ensureRequest("s"))
}

// P4: an informer that never syncs would report no objects, so the start fails and says which.
func TestAStartSaysWhatCannotWork(t *testing.T) {
	_, err := bridge.New(withHabits(t, habits.ReadsSecrets), bridge.WithInitializeAtStart(true))
	if err == nil || !strings.Contains(err.Error(), "*v1.Secret") || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Error(err)
	}
}

// V3: Events reach the host, without the parts that differ from call to call.
func TestEventsAreTold(t *testing.T) {
	conn := serve(t, withHabits(t, habits.TellsEvents))
	answer := ensured(t, conn, ensureRequest("s"))
	if events := answer.GetEvents(); len(events) != 1 || events[0].GetReason() != "Making" || events[0].GetMessage() != "making it" ||
		events[0].GetType() != pb.EventType_EVENT_TYPE_WARNING {
		t.Error(events)
	}
}

// P5: a constructor that needs them gets clients and informers, and its panic becomes an error.
func TestAConstructorGetsClientsAndInformers(t *testing.T) {
	var nodes listers.NodeLister
	provider, err := bridge.NewWith(soon(t), strings.NewReader("region: x"), func(_ context.Context, _ io.Reader,
		clients cloudprovider.ControllerClientBuilder, shared informers.SharedInformerFactory) (cloudprovider.Interface, error) {
		nodes = shared.Core().V1().Nodes().Lister()
		_, err := clients.Client("constructor")
		return withHabits(t), err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(provider.Stop)
	if _, err := nodes.List(labels.Everything()); err != nil {
		t.Error(err)
	}
	if _, err := bridge.NewWith(soon(t), nil, func(context.Context, io.Reader, cloudprovider.ControllerClientBuilder,
		informers.SharedInformerFactory) (cloudprovider.Interface, error) {
		panic("no region")
	}); err == nil {
		t.Error("no error")
	}
}
