package bridge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/bridge"
	"cloudprovider.ccm/sdk/bridge/examples/difficult/habits"
	"cloudprovider.ccm/sdk/bridge/internal/privateapi"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// realAPI holds what the private API does, and grants a provider's writes to Services.
type realAPI struct{ *privateapi.API }

func newRealAPI(t *testing.T) realAPI {
	t.Helper()
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
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
	service, former := &v1.Service{}, &v1.Service{}
	for text, into := range map[*[]byte]*v1.Service{&before: former, &after: service} {
		if _, _, bad := scheme.Codecs.UniversalDeserializer().Decode(*text, nil, into); err != nil || bad != nil {
			return nil, errors.Join(err, bad)
		}
	}
	manager, _, _ := strings.Cut(request.UserAgent(), "/")
	for key, value := range service.Annotations {
		if former.Annotations[key] != value {
			isWrittenBy(service, manager, key)
		}
	}
	if _, err := g.api.Set("services", service); err != nil {
		return nil, err
	}
	return g.next.RoundTrip(read)
}

// isWrittenBy says who wrote an annotation, as an apiserver does.
func isWrittenBy(service *v1.Service, manager, annotation string) {
	service.ManagedFields = append(service.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(fmt.Sprintf(`{"f:metadata":{"f:annotations":{".":{},%q:{}}},"f:spec":{"f:type":{}}}`, "f:"+annotation)),
	})
}

// ours is the name under which an apiserver knows what this process writes.
var ours = filepath.Base(os.Args[0])

// P2: with a real API, a provider is called with its objects, by their uids.
func TestAProviderGetsTheRealObjects(t *testing.T) {
	real := newRealAPI(t)
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
	real := newRealAPI(t)
	edited := &v1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "s", Finalizers: []string{"x.example/f"}, Annotations: map[string]string{
			"cloud.example/kind": "edited", "cloud.example/internal": "true", "cloud.example/id": "7",
		}},
		Spec: v1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []v1.ServicePort{{Port: 81}}},
	}
	isWrittenBy(edited, ours, "cloud.example/id")
	set(t, real, "services", edited)
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
		// The id is what the provider wrote.
		if want := map[string]string{"cloud.example/kind": "network", "cloud.example/id": "7"}; !maps.Equal(seen.Annotations, want) {
			t.Error(seen.Annotations)
		}
		if cloud.has != "80 b" || seen.Spec.Selector["app"] != "web" || !slices.Contains(seen.Finalizers, "x.example/f") {
			t.Error(cloud.has, seen)
		}
	}
}

// A Service that is edited while its request waits is applied as requested: the host takes the request's digest for applied, and an
// edit that is taken back meanwhile would cause no further call.
func TestARealServiceIsAppliedAsRequested(t *testing.T) {
	real := newRealAPI(t)
	edited := &v1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", UID: "s", Labels: map[string]string{"tier": "edited", "internal": "true"},
			Annotations: map[string]string{"cloud.example/kind": "edited", "cloud.example/internal": "true", "cloud.example/id": "7"},
		},
		Spec: v1.ServiceSpec{Selector: map[string]string{"app": "web"}, PublishNotReadyAddresses: true, Ports: []v1.ServicePort{{Port: 81}}},
	}
	isWrittenBy(edited, "kubectl-edit", "cloud.example/internal")
	isWrittenBy(edited, ours, "cloud.example/id")
	set(t, real, "services", edited)
	cloud := newer()
	var seen *v1.Service
	cloud.ensure = func(_ context.Context, service *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
		seen = service
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}}, nil
	}
	request := ensureRequest("s")
	request.Service.Labels, request.Service.Annotations = map[string]string{"tier": "web"}, map[string]string{"cloud.example/kind": "network", "cloud.example/size": "large"}
	conn := serve(t, cloud, bridge.WithKubernetes(real.Config()))
	ensured(t, conn, request)
	if seen.ResourceVersion != "1" {
		t.Error("a PUT of the Service would undo the edit")
	}
	// The id is what the provider wrote, which the host has not seen yet.
	if want := map[string]string{"cloud.example/kind": "network", "cloud.example/size": "large", "cloud.example/id": "7"}; !maps.Equal(seen.Annotations, want) {
		t.Error(seen.Annotations)
	}
	if seen.Spec.Ports[0].Port != 80 || !maps.Equal(seen.Labels, request.Service.Labels) || seen.Spec.Selector["app"] != "web" || !seen.Spec.PublishNotReadyAddresses {
		t.Error(seen)
	}
	seen.ResourceVersion = ""
	// Which the host sends nobody.
	seen.Annotations[v1.LastAppliedConfigAnnotation] = "{}"
	// As the user wrote them, and as the host sends them.
	seen.Spec.LoadBalancerSourceRanges, request.Service.SourceRanges = []string{"192.0.2.0/24", "10.1.2.3/8 "}, []string{"10.0.0.0/8", "192.0.2.0/24"}
	set(t, real, "services", seen)
	request.DesiredDigest = "not edited any more"
	if ensured(t, conn, request); seen.ResourceVersion == "1" {
		t.Error("the Service is shown as it is, and a PUT of it is refused")
	}
}

// A provider that finds a balancer by what it wrote on the Service finds it, whatever the bridge remembers.
func TestABalancerIsReadByTheRealService(t *testing.T) {
	real := newRealAPI(t)
	written := &v1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "s", Annotations: map[string]string{"cloud.example/id": "7"}},
	}
	isWrittenBy(written, ours, "cloud.example/id")
	set(t, real, "services", written)
	cloud := newer()
	cloud.stands = func(service *v1.Service) bool { return service.Annotations["cloud.example/id"] == "7" }
	conn := serve(t, cloud, bridge.WithKubernetes(real.Config()))
	for _, remembers := range []bool{false, true} {
		if remembers {
			ensured(t, conn, ensureRequest("s"))
		}
		found, err := pb.NewLoadBalancersClient(conn).GetLoadBalancer(soon(t), &pb.GetLoadBalancerRequest{Cluster: clusterRef(), Service: service("s").GetRef()})
		if err != nil || found.GetLoadBalancer().GetState() != pb.LoadBalancerState_LOAD_BALANCER_STATE_ACTIVE {
			t.Error(remembers, found, err)
		}
	}
}

// The sidecar's informer may be behind the host, which takes the digest of the set for applied: a node that is ready again would stay
// without traffic until it changes once more.
func TestRealNodesAreAsInTheSet(t *testing.T) {
	const pool, drain, keyOfZone = "x.example/pool", "x.example/drain", "topology.kubernetes.io/zone"
	real := func(change func(*v1.Node)) *v1.Node {
		node := &v1.Node{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", Labels: map[string]string{keyOfZone: "x", pool: "real"}},
			Spec:       v1.NodeSpec{ProviderID: "fake://a", PodCIDRs: []string{"10.1.0.0/24"}, Taints: []v1.Taint{{Key: drain, Value: "1", Effect: v1.TaintEffectNoExecute}}},
			Status: v1.NodeStatus{
				Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
				Addresses:  []v1.NodeAddress{{Type: v1.NodeHostName, Address: "a"}, {Type: v1.NodeInternalIP, Address: "10.0.0.1"}},
			},
		}
		change(node)
		return node
	}
	sent := &pb.NodeRef{
		Name: "a", Uid: "a", ProviderId: "fake://a", Labels: map[string]string{keyOfZone: "x"}, PodCidrs: []string{"10.1.0.0/24"},
		Taints:    []*pb.NodeTaint{{Key: drain, Value: "1", Effect: pb.TaintEffect_TAINT_EFFECT_NO_EXECUTE}},
		Readiness: pb.NodeReadiness_NODE_READINESS_READY,
		Addresses: []*pb.NodeAddress{
			{Type: pb.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP, Address: "10.0.0.1"}, {Type: pb.NodeAddressType_NODE_ADDRESS_TYPE_HOSTNAME, Address: "a"},
		},
	}
	for name, row := range map[string]struct {
		change func(*v1.Node)
		shown  bool
	}{
		"as sent":            {func(*v1.Node) {}, true},
		"of another pool":    {func(node *v1.Node) { node.Labels[pool] = "real, too" }, true},
		"another machine":    {func(node *v1.Node) { node.Spec.ProviderID = "fake://b" }, false},
		"another node":       {func(node *v1.Node) { node.UID = "b" }, false},
		"in another zone":    {func(node *v1.Node) { node.Labels[keyOfZone] = "y" }, false},
		"in no zone":         {func(node *v1.Node) { delete(node.Labels, keyOfZone) }, false},
		"in a region":        {func(node *v1.Node) { node.Labels["topology.kubernetes.io/region"] = "r" }, false},
		"not ready":          {func(node *v1.Node) { node.Status.Conditions[0].Status = v1.ConditionUnknown }, false},
		"cordoned":           {func(node *v1.Node) { node.Spec.Unschedulable = true }, false},
		"without a taint":    {func(node *v1.Node) { node.Spec.Taints = nil }, false},
		"with another taint": {func(node *v1.Node) { node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: "t"}) }, false},
		"going":              {func(node *v1.Node) { node.DeletionTimestamp = &metav1.Time{Time: time.Unix(1700000000, 0)} }, false},
		"elsewhere":          {func(node *v1.Node) { node.Status.Addresses[1].Address = "10.0.0.2" }, false},
		"with other pods":    {func(node *v1.Node) { node.Spec.PodCIDRs = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			api := newRealAPI(t)
			set(t, api, "nodes", real(row.change))
			cloud := newer()
			var nodes []*v1.Node
			cloud.ensure = func(_ context.Context, _ *v1.Service, given []*v1.Node) (*v1.LoadBalancerStatus, error) {
				nodes = given
				return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}}, nil
			}
			conn := serve(t, &informed{cloud: cloud}, bridge.WithKubernetes(api.Config()), bridge.WithBackendNodeState())
			for _, digest := range []string{"", "1"} {
				request := ensureRequest("s")
				request.Backends = &pb.BackendSet{Digest: digest, Nodes: []*pb.NodeRef{sent}}
				ensured(t, conn, request)
				got := nodes[0]
				if (got.Labels[pool] != "") != row.shown || got.Labels[keyOfZone] != "x" || state(got) != "True "+drain+" NoExecute" || got.UID != "a" ||
					got.Spec.ProviderID != "fake://a" {
					t.Errorf("the real node is shown: %t, want %t: %v", got.Labels[pool] != "", row.shown, got)
				}
			}
		})
	}
}

// An edit that the host has not asked for yet is followed by the deletion: the balancer goes as it was applied, too, whether the bridge
// remembers that or only the host does.
func TestABalancerOfARealServiceIsDeletedAsItWasApplied(t *testing.T) {
	real := newRealAPI(t)
	set(t, real, "services", &v1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "s", Annotations: map[string]string{"cloud.example/keep": "true"}},
	})
	applied := ensureRequest("s")
	applied.Service.Annotations = map[string]string{"cloud.example/kind": "network", "cloud.example/keep": "false"}
	for name, told := range map[string]struct{ ensures, hints bool }{"both": {true, true}, "the bridge": {true, false}, "the host": {false, true}, "nobody": {}} {
		t.Run(name, func(t *testing.T) {
			cloud := newer()
			var as []string
			cloud.remove = func(_ context.Context, got *v1.Service) error {
				as = append(as, got.Annotations["cloud.example/kind"]+" "+got.Annotations["cloud.example/keep"])
				return nil
			}
			cloud.stands = func(*v1.Service) bool { return true }
			conn := serve(t, cloud, bridge.WithKubernetes(real.Config()))
			if told.ensures {
				ensured(t, conn, applied)
			}
			gone, want := deleteRequest("s"), []string{" true"}
			if told.hints {
				gone.LastKnown = applied.GetService()
			}
			if told.ensures || told.hints {
				want = []string{" true", "network true"}
			}
			if _, err := pb.NewLoadBalancersClient(conn).DeleteLoadBalancer(soon(t), gone); err != nil || !slices.Equal(as, want) {
				t.Error(err, as)
			}
		})
	}
}

// silent is an API that accepts the request for a Service and never answers it.
type silent struct{ next http.RoundTripper }

func (s silent) RoundTrip(request *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(request.URL.Path, "/services/silent") {
		return s.next.RoundTrip(request)
	}
	<-request.Context().Done()
	return nil, request.Context().Err()
}

// An API that hangs keeps nobody's place, and a change that could not begin leaves nothing in doubt.
func TestAnAPIThatHangsHoldsUpNoOtherService(t *testing.T) {
	config := newRealAPI(t).Config()
	config.Transport = silent{config.Transport}
	conn := serve(t, newer(), bridge.WithKubernetes(config), bridge.WithConcurrency(1), bridge.WithPatience(3*time.Second))
	ensured(t, conn, requestNamed("1", "web"))
	ctx, done := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer done()
	change := requestNamed("1", "silent")
	change.DesiredDigest = "digest-2"
	_, _ = pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(ctx, change)
	if answer := ensured(t, conn, requestNamed("2", "web")); answer.GetInProgress() != nil {
		t.Error(answer)
	}
	if digests := listed(t, conn); !maps.Equal(digests, map[string]string{"1": "digest-1", "2": "digest-1"}) {
		t.Error(digests)
	}
}

// refusing answers as the API does whose RBAC allows nothing (403), or that does not know the caller (401).
type refusing struct{ status *apierrors.StatusError }

func (r refusing) RoundTrip(request *http.Request) (*http.Response, error) {
	told := r.status.Status()
	told.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := json.Marshal(told)
	return &http.Response{
		StatusCode: int(told.Code), Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: request,
	}, err
}

// A right that is missing in Kubernetes is asked for less and less often, names itself, and is none of the cloud's.
func TestAKubeconfigWithoutRights(t *testing.T) {
	services := schema.GroupResource{Resource: "services"}
	for _, refused := range []*apierrors.StatusError{
		apierrors.NewForbidden(services, "web", errors.New(`User "provider" cannot get resource "services"`)), apierrors.NewUnauthorized("Unauthorized"),
	} {
		conn := serve(t, newer(), bridge.WithKubernetes(&rest.Config{Host: "http://127.0.0.1:1", Transport: refusing{refused}}))
		_, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), ensureRequest("s"))
		expect(t, err, codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR)
		if text := status.Convert(err).Message(); !strings.Contains(text, "--kubeconfig") || !strings.Contains(text, refused.Error()) {
			t.Error(text)
		}
	}
}

// An API that is away comes back by itself.
func TestAKubernetesAPIThatDoesNotAnswer(t *testing.T) {
	nothing := &rest.Config{Host: "http://127.0.0.1:0", Timeout: time.Second}
	conn := serve(t, newer(), bridge.WithKubernetes(nothing))
	_, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), ensureRequest("s"))
	expect(t, err, codes.Unavailable, pb.ErrorReason_ERROR_REASON_RETRY_LATER)
}

// The habits of the difficult provider with a real API: it writes to the real Service, and the host receives no annotations.
func TestADifficultProviderWithARealAPI(t *testing.T) {
	for _, habit := range []habits.Habit{habits.PatchesLate, habits.PatchesID, habits.OwnFinalizer, habits.TellsEvents} {
		t.Run(string(habit), func(t *testing.T) {
			real := newRealAPI(t)
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
