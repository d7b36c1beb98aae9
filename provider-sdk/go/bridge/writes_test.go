package bridge_test

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/bridge"
	"cloudprovider.ccm/sdk/bridge/examples/difficult/habits"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
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

// updating is a difficult provider whose update the test replaces.
type updating struct {
	*habits.Cloud
	update func()
}

func (u updating) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return u, true }

func (u updating) UpdateLoadBalancer(context.Context, string, *v1.Service, []*v1.Node) error {
	u.update()
	return nil
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

// V3, P3: what a provider writes to the Service of its call is there in the next call, even after a restart: the host keeps it
// on the real Service; without Kubernetes credentials.
func TestWhatAProviderWritesOnItsServiceStays(t *testing.T) {
	const cleanup, finalizers = "service.kubernetes.io/load-balancer-cleanup", "bridge.cloudprovider.ccm/finalizers"
	for habit, row := range map[habits.Habit]struct {
		annotation, value string
		balancers         int
		finalizers        []string
	}{
		habits.PatchesLate:  {habits.AddressKey, "192.0.2.1", 0, []string{cleanup}},
		habits.PatchesID:    {habits.IDKey, "", 1, []string{cleanup}},
		habits.OwnFinalizer: {finalizers, habits.Finalizer, 0, []string{habits.Finalizer, cleanup}},
	} {
		t.Run(string(habit), func(t *testing.T) {
			cloud := withHabits(t, habit)
			process := func(work func(*grpc.ClientConn)) {
				t.Run("process", func(t *testing.T) {
					work(serve(t, cloud, bridge.WithServiceAnnotationWrites("difficult.example/")))
				})
			}
			// real is the Service with what the host has written on it.
			real := service("s")
			told := func(answer *pb.EnsureLoadBalancerResponse) {
				maps.Copy(real.Annotations, answer.GetService().GetAnnotations())
				for _, key := range answer.GetService().GetRemovedAnnotations() {
					delete(real.Annotations, key)
				}
			}
			request := func(digest string) *pb.EnsureLoadBalancerRequest {
				out := ensureRequest("s")
				out.Service, out.DesiredDigest = proto.CloneOf(real), digest
				return out
			}
			sees := func() {
				t.Helper()
				seen := cloud.Seen()
				want := real.Annotations[row.annotation]
				if row.annotation == finalizers {
					want = ""
				}
				if seen.Annotations[row.annotation] != want || !slices.Equal(seen.Finalizers, row.finalizers) || len(cloud.IDs()) != row.balancers {
					t.Error(seen, cloud.IDs())
				}
			}
			var written string
			process(func(conn *grpc.ClientConn) {
				told(ensured(t, conn, request("digest-1")))
				if written = real.Annotations[row.annotation]; written == "" || (row.value != "" && written != row.value) {
					t.Errorf("the host was told %q", written)
				}
				told(ensured(t, conn, request("digest-2")))
				sees()
			})
			// It needs no Ensure to know again what it wrote.
			process(func(conn *grpc.ClientConn) {
				update := &pb.LoadBalancerUpdate{Service: proto.CloneOf(real), DesiredDigest: "digest-3"}
				isUpdated(t, follow(t, conn, update.GetService(), update.GetDesiredDigest(), "a"))
				sees()
			})
			process(func(conn *grpc.ClientConn) {
				if told(ensured(t, conn, request("digest-4"))); real.Annotations[row.annotation] != written {
					t.Error(real.Annotations)
				}
				sees()
			})
			process(func(conn *grpc.ClientConn) {
				gone := deleteRequest("s")
				gone.LastKnown = proto.CloneOf(real)
				deleted, err := pb.NewLoadBalancersClient(conn).DeleteLoadBalancer(soon(t), gone)
				if err != nil || len(cloud.IDs()) != 0 || len(cloud.Balancers()) != 0 {
					t.Error(cloud.IDs(), err)
				}
				removed := deleted.GetService().GetRemovedAnnotations()
				if habit == habits.OwnFinalizer && !slices.Contains(removed, finalizers) {
					t.Errorf("the finalizer of a deleted balancer stays: %v", removed)
				}
				// Another Service begins with no annotations.
				if again := ensured(t, conn, ensureRequest("s")).GetService().GetAnnotations()[row.annotation]; habit == habits.PatchesID && again == written {
					t.Error(again)
				}
			})
		})
	}
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

// P8: after a provider has written to its Service, it is called again soon, as by its own controller manager, which sees the
// change; otherwise when it asked for.
func TestAProviderThatWroteIsAskedAgainSoon(t *testing.T) {
	cloud := withHabits(t, habits.PatchesID, habits.Retries)
	conn := serve(t, cloud)
	if got := ensured(t, conn, ensureRequest("s")).GetInProgress().GetRetryAfter().AsDuration(); got != time.Second {
		t.Errorf("%v after it wrote", got)
	}
	if answer := ensured(t, conn, ensureRequest("s")); answer.GetInProgress() != nil || len(cloud.IDs()) != 1 {
		t.Error(answer, cloud.IDs())
	}
	conn = serve(t, withHabits(t, habits.Retries))
	if got := ensured(t, conn, ensureRequest("s")).GetInProgress().GetRetryAfter().AsDuration(); got != habits.RetryAfter {
		t.Errorf("%v though it wrote nothing", got)
	}
}

// V3: nothing else may be written, and nothing outside a call.
func TestAProviderWritesNothingElse(t *testing.T) {
	cloud := withHabits(t)
	conn := serve(t, cloud)
	ensured(t, conn, ensureRequest("s"))
	write := func(kind types.PatchType, patch string) error {
		_, err := cloud.Client().CoreV1().Services("default").Patch(soon(t), "web", kind, []byte(patch), metav1.PatchOptions{})
		return err
	}
	if err := write(types.MergePatchType, `{"metadata":{"annotations":{"a":"b"}}}`); err == nil || !strings.Contains(err.Error(), "while it is called") {
		t.Error(err)
	}
	var errs []error
	conn = serve(t, updating{cloud, func() {
		errs = []error{
			write(types.MergePatchType, `{"spec":{"type":"ClusterIP"}}`),
			write(types.MergePatchType, `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.66"}]}}}`),
			write(types.ApplyYAMLPatchType, `{}`),
			write(types.JSONPatchType, `[{"op":"add","path":"/metadata/annotations/a","value":"b"}]`),
			write(types.JSONPatchType, `[{"op":"test","path":"/metadata/annotations/a","value":"b"}]`),
			write(types.MergePatchType, `{"metadata":{"resourceVersion":"1","annotations":{"a":"c"}}}`),
		}
	}})
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

// A condition that a provider sets is on its view of the Service, and the host sets it on the real one if its type is listed.
func TestConditionsThatAProviderSetsReachTheHost(t *testing.T) {
	cloud, seen := &informed{cloud: newer()}, 0
	cloud.ensure = func(ctx context.Context, service *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
		seen = len(service.Status.Conditions)
		after := service.DeepCopy()
		for _, kind := range []string{"x.example/Open", "x.example/Private"} {
			apimeta.SetStatusCondition(&after.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: "Closed", Message: "why"})
		}
		if _, err := cloud.client.CoreV1().Services(after.Namespace).UpdateStatus(ctx, after, metav1.UpdateOptions{}); err != nil {
			return nil, err
		}
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}}, nil
	}
	conn := serve(t, cloud, bridge.WithServiceConditionWrites("x.example/Open"))
	first := ensured(t, conn, ensureRequest("s")).GetService().GetConditions()
	if len(first) != 1 || first[0].GetType() != "x.example/Open" || first[0].GetReason() != "Closed" ||
		first[0].GetStatus() != pb.ConditionStatus_CONDITION_STATUS_FALSE || first[0].GetMessage() != "why" {
		t.Error(first)
	}
	again := ensureRequest("s")
	again.DesiredDigest = "digest-2"
	if ensured(t, conn, again); seen != 2 {
		t.Errorf("%d conditions are known at the next call", seen)
	}
}
