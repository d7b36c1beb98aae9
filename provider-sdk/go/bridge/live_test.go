package bridge_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/bridge"
	"cloudprovider.ccm/sdk/bridge/examples/difficult/habits"
	"cloudprovider.ccm/sdk/bridge/internal/privateapi"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// realAPI holds what the private API does, and grants a provider's writes to Services.
type realAPI struct{ *privateapi.API }

func newRealAPI(stop <-chan struct{}) realAPI {
	return realAPI{privateapi.New(stop, func(types.UID, string, string, string) {})}
}

func (r realAPI) Config() *rest.Config {
	config := r.API.Config()
	config.Transport = granting{r.API, config.Transport}
	return config
}

type granting struct {
	api  *privateapi.API
	next http.RoundTripper
}

func (g granting) RoundTrip(request *http.Request) (*http.Response, error) {
	if method := request.Method; method != http.MethodPatch && method != http.MethodPut || !strings.Contains(request.URL.Path, "/services/") {
		return g.next.RoundTrip(request)
	}
	read := request.Clone(request.Context())
	read.Method, read.Body = http.MethodGet, nil
	found, err := g.next.RoundTrip(read)
	if err != nil || found.StatusCode != http.StatusOK {
		return found, err
	}
	before, err := io.ReadAll(found.Body)
	if err != nil {
		return nil, err
	}
	after, err := io.ReadAll(request.Body)
	if request.Method == http.MethodPatch && err == nil {
		after, err = strategicpatch.StrategicMergePatch(before, after, v1.Service{})
	}
	service := &v1.Service{}
	if _, _, bad := scheme.Codecs.UniversalDeserializer().Decode(after, nil, service); err != nil || bad != nil {
		return nil, errors.Join(err, bad)
	}
	if _, err := g.api.Set("services", service); err != nil {
		return nil, err
	}
	return g.next.RoundTrip(read)
}

// P2: with a real API, a provider is called with its objects, by their uids.
func TestAProviderGetsTheRealObjects(t *testing.T) {
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	real := newRealAPI(stop)
	set := func(resource string, object runtime.Object) {
		if _, err := real.Set(resource, object); err != nil {
			t.Fatal(err)
		}
	}
	now := metav1.NewTime(time.Unix(1700000000, 0))
	set("services", &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "s", Finalizers: []string{"x.example/f"}, DeletionTimestamp: &now},
		Spec:       v1.ServiceSpec{Selector: map[string]string{"app": "web"}},
	})
	tainted := v1.NodeSpec{ProviderID: "fake://a", Taints: []v1.Taint{{Key: "t"}}}
	set("nodes", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}, Spec: tainted})
	set("nodes", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "another"}, Spec: tainted})
	cloud := newer()
	var seen *v1.Service
	var nodes []*v1.Node
	cloud.ensure = func(_ context.Context, service *v1.Service, given []*v1.Node) (*v1.LoadBalancerStatus, error) {
		seen, nodes = service, given
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}}, nil
	}
	conn := serve(t, &informed{cloud: cloud}, bridge.WithKubernetes(real.Config()))
	request := ensureRequest("s")
	request.Backends = &pb.BackendSet{Digest: "1", Nodes: []*pb.NodeRef{{Name: "a", Uid: "a", ProviderId: "fake://a"}, {Name: "b", Uid: "b"}}}
	if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err != nil {
		t.Fatal(err)
	}
	if len(seen.Finalizers) != 1 || seen.DeletionTimestamp == nil || seen.Spec.Selector["app"] != "web" {
		t.Error(seen)
	}
	if len(nodes) != 2 || len(nodes[0].Spec.Taints) != 1 || len(nodes[1].Spec.Taints) != 0 || nodes[1].UID != "b" {
		t.Error(nodes)
	}
	// One with another uid is another Service.
	if ensured(t, conn, ensureRequest("other")); seen.UID != "other" || seen.DeletionTimestamp != nil {
		t.Error(seen)
	}
}

// T1, D10: with a real API, a failing edit of the real Service changes nothing about an update: it is as applied, with the
// real metadata.
func TestAnUpdateOfARealServiceIsAsApplied(t *testing.T) {
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	real := newRealAPI(stop)
	set(t, real, "services", &v1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "s", Finalizers: []string{"x.example/f"}, Annotations: map[string]string{"cloud.example/kind": "edited", "cloud.example/id": "7"}},
		Spec:       v1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []v1.ServicePort{{Port: 81}}},
	})
	cloud := stands()
	var seen *v1.Service
	update := cloud.update
	cloud.update = func(ctx context.Context, service *v1.Service, nodes []*v1.Node) error {
		seen = service
		return update(ctx, service, nodes)
	}
	for _, remembers := range []bool{true, false} {
		cloud.has = "80 a"
		conn := serve(t, cloud, bridge.WithKubernetes(real.Config()))
		if remembers {
			// The real Service is edited after this call.
			cloud.ensure = nil
			request := ensureRequest("s")
			request.Service.Annotations = map[string]string{"cloud.example/kind": "network"}
			ensured(t, conn, request)
		}
		applied := service("s")
		applied.Annotations = map[string]string{"cloud.example/kind": "network"}
		if remembers {
			applied.Annotations["cloud.example/kind"] = "not as remembered"
		}
		isUpdated(t, follow(t, conn, applied, "digest-2", "b"))
		// The id may be one that the provider wrote.
		if want := map[string]string{"cloud.example/kind": "network", "cloud.example/id": "7"}; !maps.Equal(seen.Annotations, want) {
			t.Error(seen.Annotations)
		}
		if cloud.has != "80 b" || seen.Spec.Selector["app"] != "web" || !slices.Contains(seen.Finalizers, "x.example/f") {
			t.Error(cloud.has, seen)
		}
	}
}

// A kubeconfig that lacks permissions leads to a reason and a message that say so.
func TestAKubeconfigWithoutRights(t *testing.T) {
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	nothing := &rest.Config{Host: "http://127.0.0.1:0", Timeout: time.Second}
	conn := serve(t, newer(), bridge.WithKubernetes(nothing))
	_, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), ensureRequest("s"))
	expect(t, err, codes.Unavailable, pb.ErrorReason_ERROR_REASON_RETRY_LATER)
}

// The habits of the difficult provider with a real API: it writes to the real Service, and the host receives no annotations.
func TestADifficultProviderWithARealAPI(t *testing.T) {
	for _, habit := range []habits.Habit{habits.PatchesLate, habits.PatchesID, habits.OwnFinalizer, habits.TellsEvents} {
		t.Run(string(habit), func(t *testing.T) {
			stop := make(chan struct{})
			t.Cleanup(func() { close(stop) })
			real := newRealAPI(stop)
			service := &v1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "web", UID: "s", Finalizers: []string{"service.kubernetes.io/load-balancer-cleanup"},
			}}
			if _, err := real.Set("services", service); err != nil {
				t.Fatal(err)
			}
			cloud := withHabits(t, habit)
			conn := serve(t, cloud, bridge.WithKubernetes(real.Config()))
			for range 2 {
				if answer := ensured(t, conn, ensureRequest("s")); len(answer.GetService().GetAnnotations()) != 0 || len(cloud.IDs()) > 1 {
					t.Error(answer, cloud.IDs())
				}
			}
			found, err := cloud.Client().CoreV1().Services("default").Get(soon(t), "web", metav1.GetOptions{})
			if err != nil || (habit == habits.PatchesID) != (found.Annotations[habits.IDKey] != "") || (habit == habits.OwnFinalizer) != (len(found.Finalizers) == 2) {
				t.Error(found, err)
			}
			if _, err := pb.NewLoadBalancersClient(conn).DeleteLoadBalancer(soon(t), deleteRequest("s")); err != nil || len(cloud.IDs()) != 0 {
				t.Error(cloud.IDs(), err)
			}
			found, err = cloud.Client().CoreV1().Services("default").Get(soon(t), "web", metav1.GetOptions{})
			if err != nil || len(found.Finalizers) != 1 {
				t.Error("the provider's finalizer stays:", found, err)
			}
		})
	}
}
