package bridge_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/bridge"
	"cloudprovider.ccm/sdk/bridge/examples/difficult/habits"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// life is that of two Services and their nodes with a difficult provider.
type life struct {
	*testing.T
	folder string
	conn   *grpc.ClientConn
	shop   *pb.Service
}

// begin serves a provider with one habit over a directory with two machines.
func begin(t *testing.T, habit habits.Habit, options ...bridge.Option) *life {
	t.Helper()
	folder := t.TempDir()
	cloud, err := habits.New(folder, habit)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(folder, "machines", name), []byte("running zone-a 10.0.0.1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &life{T: t, folder: folder, conn: serve(t, cloud, options...), shop: requestNamed("2", "shop").GetService()}
}

// node is a node that joins; the queries are those of a host.
func (l *life) node(name string) *pb.NodeRef {
	l.Helper()
	node := &pb.NodeRef{Name: name, Uid: name, Labels: map[string]string{"kubernetes.io/hostname": name}}
	for _, view := range []pb.InstanceView{pb.InstanceView_INSTANCE_VIEW_EXISTENCE, pb.InstanceView_INSTANCE_VIEW_METADATA, pb.InstanceView_INSTANCE_VIEW_ALL} {
		request := batch(node)
		request.View = view
		var found *pb.InstanceResult
		for end := time.Now().Add(patience); found.GetInstance() == nil; {
			answer, err := pb.NewInstancesClient(l.conn).BatchGetInstances(soon(l.T), request)
			if err != nil || time.Now().After(end) {
				l.Fatal(found, err)
			}
			found = answer.GetResults()[0]
		}
		if id := found.GetInstance().GetProviderId(); id != "fake://"+name {
			l.Fatalf("%v: %v", view, found)
		}
	}
	node.ProviderId = "fake://" + name
	return node
}

// ensure repeats until it is done; a refusal ends it.
func (l *life) ensure(service *pb.Service, digest string, nodes ...*pb.NodeRef) (*pb.LoadBalancer, error) {
	l.Helper()
	request := &pb.EnsureLoadBalancerRequest{
		Cluster: clusterRef(), Fencing: &pb.Fencing{}, Service: service, DesiredDigest: digest, Backends: &pb.BackendSet{Nodes: nodes},
	}
	for end := time.Now().Add(patience); ; {
		answer, err := pb.NewLoadBalancersClient(l.conn).EnsureLoadBalancer(soon(l.T), request)
		if err != nil || answer.GetInProgress() == nil {
			return answer.GetLoadBalancer(), err
		}
		if time.Now().After(end) {
			l.Fatal("in progress for ever:", answer)
		}
	}
}

func (l *life) mustEnsure(service *pb.Service, digest string, nodes ...*pb.NodeRef) {
	l.Helper()
	made, err := l.ensure(service, digest, nodes...)
	if err != nil && strings.Contains(err.Error(), "see the provider's log") { // A panic is reported once, and the next call succeeds.
		made, err = l.ensure(service, digest, nodes...)
	}
	if err != nil || made.GetIngress()[0].GetIp() != "192.0.2.1" || made.GetAppliedDigest() != digest {
		l.Fatal(made, err)
	}
}

func (l *life) remove(service *pb.Service) {
	l.Helper()
	request := &pb.DeleteLoadBalancerRequest{Cluster: clusterRef(), Fencing: &pb.Fencing{}, Service: service.GetRef(), LastKnown: service}
	if answer, err := pb.NewLoadBalancersClient(l.conn).DeleteLoadBalancer(soon(l.T), request); err != nil || answer.GetInProgress() != nil {
		l.Fatal(answer, err)
	}
}

// names returns the files of one part of the cloud.
func (l *life) names(part string) string {
	files, _ := filepath.Glob(filepath.Join(l.folder, part, "*"))
	for at, file := range files {
		files[at] = filepath.Base(file)
	}
	return strings.Join(files, " ")
}

func (l *life) text(file string) string {
	text, _ := os.ReadFile(filepath.Join(l.folder, file))
	return string(text)
}

// run goes from the first node to the last Service.
func (l *life) run(habit habits.Habit) {
	a, b := l.node("a"), l.node("b")
	web := service("1")
	l.mustEnsure(web, "digest-1", a)
	l.mustEnsure(l.shop, "digest-1", a)
	update := &pb.BatchUpdateLoadBalancersRequest{
		Cluster: clusterRef(), Fencing: &pb.Fencing{}, Backends: &pb.BackendSet{Nodes: []*pb.NodeRef{a, b}},
		Items: []*pb.LoadBalancerUpdate{{Service: web, DesiredDigest: "digest-2"}},
	}
	updated, err := pb.NewLoadBalancersClient(l.conn).BatchUpdateLoadBalancers(soon(l.T), update)
	if err != nil || updated.GetResults()[0].GetOutcome() != pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED {
		l.Fatal(updated, err)
	}
	web.Ports[0].Port = 8080
	l.mustEnsure(web, "digest-3", a, b)
	if got := l.text("ports/web"); got != "http 8080\n" {
		l.Errorf("the edit did not arrive: %q", got)
	}
	if habit == habits.ListsServices && l.names("rules") != "shop web" {
		l.Error("rules of", l.names("rules"))
	}
	if habit == habits.PatchesID && len(strings.Fields(l.names("ids"))) != 2 {
		l.Error("balancers", l.names("ids"))
	}
	if habit == habits.RunsLoops {
		for end := time.Now().Add(patience); l.text("firewall") != "default/shop 30080\ndefault/web 30080\n"; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				l.Fatalf("the firewall lets in %q", l.text("firewall"))
			}
		}
	}
	l.remove(web)
	l.remove(l.shop)
	for _, part := range []string{"balancers", "ids", "rules", "ports"} {
		if left := l.names(part); left != "" {
			l.Errorf("%s left: %s", part, left)
		}
	}
}

// P1 to P8, V2, V3: each habit of a published provider, without and with credentials for the cluster: the node is described, the
// Service gets its balancer, an edit arrives, and the Service leaves nothing behind.
func TestADifficultProviderLives(t *testing.T) {
	for _, habit := range []habits.Habit{
		habits.RefusesEmptyID, habits.ListsServices, habits.WantsNodeLister,
		habits.RunsLoops, habits.Retries, habits.WritesNodes, habits.OwnMetrics, habits.TellsEvents, habits.Panics, habits.Hangs,
	} {
		t.Run(string(habit), func(t *testing.T) { begin(t, habit).run(habit) })
	}
}

// The real API here holds only what the private one does, and grants everything; tests/e2e covers the rest.
func TestADifficultProviderLivesWithARealAPI(t *testing.T) {
	for _, habit := range []habits.Habit{
		habits.PatchesLate, habits.PatchesID, habits.OwnFinalizer, habits.ListsServices, habits.WantsNodeLister, habits.RunsLoops,
	} {
		t.Run(string(habit), func(t *testing.T) {
			real := newRealAPI(t)
			for _, name := range []string{"a", "b"} {
				set(t, real, "nodes", &v1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: meta("", name, name), Spec: v1.NodeSpec{ProviderID: "fake://" + name}})
			}
			for uid, name := range map[string]string{"1": "web", "2": "shop"} {
				one := &v1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta("default", name, uid), Spec: v1.ServiceSpec{
					Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Name: "http", Port: 8080, NodePort: 30080}},
				}}
				one.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
				set(t, real, "services", one)
			}
			begin(t, habit, bridge.WithKubernetes(real.Config())).run(habit)
		})
	}
}

func meta(namespace, name, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}
}

func set(t *testing.T, api realAPI, resource string, object runtime.Object) {
	t.Helper()
	if _, err := api.Set(resource, object); err != nil {
		t.Fatal(err)
	}
}

// P6: a provider's own registry is served if main names it, component-base's always.
func TestADifficultProvidersMetricsAreServed(t *testing.T) {
	provider, err := bridge.New(withHabits(t, habits.OwnMetrics), bridge.WithSDKOptions(sdk.WithGatherers(habits.Registry)))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	server, err := sdk.Listen(provider, sdk.WithEndpoint(filepath.Join(folder, "p.sock")), sdk.WithoutSignals(), sdk.WithMetricsAddress("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(context.Background()) }()
	t.Cleanup(func() {
		provider.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	answer, err := http.Get("http://" + server.MetricsAddress().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	for _, name := range []string{"difficult_own_total 1", "difficult_shared_total"} {
		if err != nil || !strings.Contains(string(text), name) {
			t.Errorf("no %s, %v", name, err)
		}
	}
}

// P4: if a provider needs more of Kubernetes than nodes and Services, the error, which becomes an Event, says so; the node exists.
func TestADifficultProviderSaysWhatItNeeds(t *testing.T) {
	for habit, kind := range map[habits.Habit]string{
		habits.ReadsConfigMap: "configmaps", habits.LocksLease: "leases.coordination.k8s.io",
		habits.PatchesLate: "services", habits.PatchesID: "services", habits.OwnFinalizer: "services",
	} {
		t.Run(string(habit), func(t *testing.T) {
			life := begin(t, habit)
			_, err := life.ensure(service("1"), "digest-1", life.node("a"))
			expect(t, err, codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR)
			if text := err.Error(); !strings.Contains(text, "--kubeconfig") || !strings.Contains(text, kind) {
				t.Error(text)
			}
		})
	}
}

// V2: the provider's informer knows the bridge's Services before the provider is called: a list that is slightly out of date would
// remove the newest Service's rule, or keep that of a deleted one.
func TestADifficultProviderSeesTheNewestServices(t *testing.T) {
	life := begin(t, habits.ListsServices)
	a := life.node("a")
	for at := range 30 {
		life.mustEnsure(requestNamed(fmt.Sprint("uid-", at), fmt.Sprint("web-", at)).GetService(), "digest-1", a)
		if rules := strings.Fields(life.names("rules")); len(rules) != at+1 {
			t.Fatalf("%d Services, rules of %v", at+1, rules)
		}
	}
	for at := range 30 {
		life.remove(requestNamed(fmt.Sprint("uid-", at), fmt.Sprint("web-", at)).GetService())
		if rules := strings.Fields(life.names("rules")); len(rules) != 29-at {
			t.Fatalf("%d Services, rules of %v", 29-at, rules)
		}
	}
}

// One Service hangs; it is in progress, and delays no other.
func TestADifficultProviderHangs(t *testing.T) {
	life := begin(t, habits.Hangs)
	hang := filepath.Join(life.folder, "hang")
	if err := os.WriteFile(hang, []byte("web"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(hang) })
	answer := inTime(t, func(ctx context.Context) (*pb.EnsureLoadBalancerResponse, error) {
		return pb.NewLoadBalancersClient(life.conn).EnsureLoadBalancer(ctx, ensureRequest("1"))
	})
	if answer.GetInProgress().GetReason() != "CALL_RUNS" {
		t.Error(answer)
	}
	life.mustEnsure(life.shop, "digest-1", life.node("a"))
	if err := os.Remove(hang); err != nil {
		t.Fatal(err)
	}
	life.mustEnsure(service("1"), "digest-1", &pb.NodeRef{Name: "a"}, &pb.NodeRef{Name: "b"})
}
