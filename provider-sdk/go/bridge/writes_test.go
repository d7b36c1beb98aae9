package bridge_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/bridge"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"
)

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

// V3, P3: what a provider writes on the Service that it is called with is there at the next call, also after a restart, and the host
// learns of it; without Kubernetes credentials.
func TestWhatAProviderWritesOnItsServiceStays(t *testing.T) {
	for habit, row := range map[string]struct {
		annotation, value string
		finalizers        []string
	}{
		patchesLate:  {lateKey, "192.0.2.1", []string{"service.kubernetes.io/load-balancer-cleanup"}},
		patchesID:    {idKey, "lb-0", []string{"service.kubernetes.io/load-balancer-cleanup"}},
		ownFinalizer: {"", "", []string{finalizer, "service.kubernetes.io/load-balancer-cleanup"}},
	} {
		t.Run(habit, func(t *testing.T) {
			state, cloud := t.TempDir(), withHabits(habit)
			process := func(work func(*grpc.ClientConn)) {
				t.Run("process", func(t *testing.T) {
					work(serve(t, cloud, bridge.WithStateDir(state), bridge.WithServiceAnnotationWrites("difficult.example/")))
				})
			}
			process(func(conn *grpc.ClientConn) {
				answer := ensured(t, conn, ensureRequest("s"))
				if answer.GetServiceAnnotations()[row.annotation] != row.value {
					t.Error(answer)
				}
			})
			process(func(conn *grpc.ClientConn) {
				if answer := ensured(t, conn, ensureRequest("s")); answer.GetServiceAnnotations()[row.annotation] != row.value {
					t.Error(answer)
				}
				if cloud.seen.Annotations[row.annotation] != row.value || !slices.Equal(cloud.seen.Finalizers, row.finalizers) || len(cloud.made) != 1 {
					t.Error(cloud.seen, cloud.made)
				}
				if habit == patchesLate && cloud.seen.Annotations["fake/size"] != "" {
					t.Error("what the provider removed came back")
				}
				// The host wrote it on the Service meanwhile; that is no other wish.
				update := &pb.LoadBalancerUpdate{Service: service("s"), DesiredDigest: "digest-2"}
				update.Service.Annotations[row.annotation] = row.value
				delete(update.Service.Annotations, "")
				updated, err := pb.NewLoadBalancersClient(conn).BatchUpdateLoadBalancers(soon(t), updateRequest(update))
				if err != nil || updated.GetResults()[0].GetOutcome() != pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED {
					t.Error(updated, err)
				}
				if _, err := pb.NewLoadBalancersClient(conn).DeleteLoadBalancer(soon(t), deleteRequest("s")); err != nil || len(cloud.made) != 0 {
					t.Error(cloud.made, err)
				}
				// Another Service of that uid begins with nothing.
				if ensured(t, conn, ensureRequest("s")); habit == patchesID && cloud.seen.Annotations[idKey] != "" {
					t.Error(cloud.seen)
				}
			})
		})
	}
}

// V2: what is not known is refused, with the remedy, and is never taken for empty.
func TestEmptyNeverMeansUnknown(t *testing.T) {
	cloud := withHabits()
	conn := serve(t, cloud)
	core := cloud.client.CoreV1()
	for what, ask := range map[string]func() error{
		"list ConfigMaps": func() error { _, err := core.ConfigMaps("").List(soon(t), metav1.ListOptions{}); return err },
		"list Pods":       func() error { _, err := core.Pods("").List(soon(t), metav1.ListOptions{}); return err },
		"watch Secrets":   func() error { _, err := core.Secrets("").Watch(soon(t), metav1.ListOptions{}); return err },
		"get a Secret":    func() error { _, err := core.Secrets("x").Get(soon(t), "x", metav1.GetOptions{}); return err },
		"get a Lease": func() error {
			_, err := cloud.client.CoordinationV1().Leases("x").Get(soon(t), "x", metav1.GetOptions{})
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
	if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), ensureRequest("s")); err != nil {
		t.Error(err)
	}
	cloud.habits[readsConfigMaps] = true
	_, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), ensureRequest("s"))
	if err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Error("the user learns nothing:", err)
	}
}

// P4: an informer that never has its objects would answer that there are none, so a start says what is missing.
func TestAStartSaysWhatCannotWork(t *testing.T) {
	_, err := bridge.New(withHabits(informsOfSecrets))
	if err == nil || !strings.Contains(err.Error(), "*v1.Secret") || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Error(err)
	}
}

// V2: the Services in the private API are complete: all that the host named, with status and finalizers, also after a restart.
func TestServicesAreAllThere(t *testing.T) {
	state, cloud := t.TempDir(), withHabits(listsServices)
	process := func(work func(*grpc.ClientConn)) {
		t.Run("process", func(t *testing.T) { work(serve(t, cloud, bridge.WithStateDir(state))) })
	}
	process(func(conn *grpc.ClientConn) {
		ensured(t, conn, requestNamed("1", "one"))
		ensured(t, conn, requestNamed("2", "two"))
	})
	process(func(conn *grpc.ClientConn) {
		update := &pb.LoadBalancerUpdate{Service: requestNamed("1", "one").GetService(), DesiredDigest: "digest-2"}
		update.Service.Ingress = []*pb.LoadBalancerIngress{{Ip: "192.0.2.1"}}
		answer, err := pb.NewLoadBalancersClient(conn).BatchUpdateLoadBalancers(soon(t), updateRequest(update))
		if err != nil || answer.GetResults()[0].GetError() != nil {
			t.Error(answer, err)
		}
	})
}

// V3: Events reach the host, without what differs from call to call.
func TestEventsAreTold(t *testing.T) {
	conn := serve(t, withHabits(tellsEvents))
	answer := ensured(t, conn, ensureRequest("s"))
	if events := answer.GetEvents(); len(events) != 1 || events[0].GetReason() != "Making" || events[0].GetMessage() != "making it" ||
		events[0].GetType() != pb.EventType_EVENT_TYPE_WARNING {
		t.Error(events)
	}
}

// P8: a provider that wrote on its Service is asked again soon, as its own controller manager would, which sees the change; after
// that, when it said.
func TestAProviderThatWroteIsAskedAgainSoon(t *testing.T) {
	cloud := withHabits(patchesID, retries)
	conn := serve(t, cloud)
	for _, want := range []time.Duration{time.Second, 15 * time.Second} {
		if got := ensured(t, conn, ensureRequest("s")).GetInProgress().GetRetryAfter().AsDuration(); got != want {
			t.Errorf("%v instead of %v", got, want)
		}
	}
	cloud.active = true
	if answer := ensured(t, conn, ensureRequest("s")); answer.GetInProgress() != nil || len(cloud.made) != 1 {
		t.Error(answer, cloud.made)
	}
}

// V3: nothing else may be written, and nothing at another time.
func TestAProviderWritesNothingElse(t *testing.T) {
	cloud := withHabits()
	conn := serve(t, cloud)
	ensured(t, conn, ensureRequest("s"))
	write := func(kind types.PatchType, patch string) error {
		_, err := cloud.client.CoreV1().Services("default").Patch(soon(t), "web", kind, []byte(patch), metav1.PatchOptions{})
		return err
	}
	if err := write(types.MergePatchType, `{"metadata":{"annotations":{"a":"b"}}}`); err == nil || !strings.Contains(err.Error(), "while it is called") {
		t.Error(err)
	}
	var errs []error
	cloud.update = func(context.Context, *v1.Service, []*v1.Node) error {
		errs = []error{
			write(types.MergePatchType, `{"spec":{"type":"ClusterIP"}}`),
			write(types.MergePatchType, `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.66"}]}}}`),
			write(types.ApplyYAMLPatchType, `{}`),
			write(types.JSONPatchType, `[{"op":"add","path":"/metadata/annotations/a","value":"b"}]`),
			write(types.JSONPatchType, `[{"op":"test","path":"/metadata/annotations/a","value":"b"}]`),
			write(types.MergePatchType, `{"metadata":{"resourceVersion":"1","annotations":{"a":"c"}}}`),
		}
		return nil
	}
	wrapped := updating{cloud}
	conn = serve(t, wrapped)
	ensured(t, conn, ensureRequest("s"))
	answer, err := pb.NewLoadBalancersClient(conn).BatchUpdateLoadBalancers(soon(t),
		updateRequest(&pb.LoadBalancerUpdate{Service: service("s"), DesiredDigest: "digest-2"}))
	if err != nil || answer.GetResults()[0].GetError() != nil {
		t.Fatal(answer, err)
	}
	for at, fine := range []bool{false, false, false, true, true, false} {
		if (errs[at] == nil) != fine {
			t.Errorf("%d: %v", at, errs[at])
		}
	}
}

// P5: hcloud's routes want a lister of nodes in their constructor.
func TestAConstructorGetsClientsAndInformers(t *testing.T) {
	var cloud *difficult
	provider, err := bridge.NewWith(soon(t), strings.NewReader("region: x"), func(_ context.Context, _ io.Reader,
		clients cloudprovider.ControllerClientBuilder, shared informers.SharedInformerFactory) (cloudprovider.Interface, error) {
		cloud = withHabits()
		cloud.nodes = shared.Core().V1().Nodes().Lister()
		_, err := clients.Client("constructor")
		return cloud, err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(provider.Stop)
	if _, err := cloud.nodes.List(labels.Everything()); err != nil {
		t.Error(err)
	}
	if _, err := bridge.NewWith(soon(t), nil, func(context.Context, io.Reader, cloudprovider.ControllerClientBuilder,
		informers.SharedInformerFactory) (cloudprovider.Interface, error) {
		panic("no region")
	}); err == nil {
		t.Error("no error")
	}
}
