package main_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloudprovider.ccm/bridged-gce/mocked"
	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/bridge"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"
)

// world is the provider behind its bridge, without credentials for the cluster.
type world struct {
	*testing.T
	ctx    context.Context
	folder string
	conn   *grpc.ClientConn
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(done)
	w := &world{T: t, ctx: ctx, folder: t.TempDir()}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	klog.SetSlogLogger(log)
	cloud, err := mocked.New(w.folder)
	if err != nil {
		t.Fatal(err)
	}
	provider, err := bridge.New(cloud, bridge.WithInitializeAtStart(true), bridge.WithSDKOptions(sdk.WithLogger(log)))
	if err != nil {
		t.Fatal(err)
	}
	socket, err := os.MkdirTemp("", "gce")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(socket, "p.sock")
	server, err := sdk.Listen(provider, sdk.WithEndpoint(path), sdk.WithoutSignals(), sdk.WithShutdownGrace(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(context.Background()) }()
	if w.conn, err = grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.conn.Close()
		provider.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		os.RemoveAll(socket)
	})
	return w
}

func (w *world) launch(name string) {
	w.Helper()
	if err := os.WriteFile(filepath.Join(w.folder, "machines", name), []byte("running zone-a 10.0.0.1\n"), 0o600); err != nil {
		w.Fatal(err)
	}
}

func (w *world) ask(node *pb.NodeRef) *pb.InstanceResult {
	w.Helper()
	answer, err := pb.NewInstancesClient(w.conn).BatchGetInstances(w.ctx, &pb.BatchGetInstancesRequest{
		Cluster: cluster(), Queries: []*pb.InstanceQuery{{Key: "1", Node: node}}, View: pb.InstanceView_INSTANCE_VIEW_ALL,
	})
	if err != nil {
		w.Fatal(err)
	}
	return answer.GetResults()[0]
}

func cluster() *pb.ClusterRef { return &pb.ClusterRef{Uid: "cluster-1", Name: "kubernetes"} }

func TestANodeIsDescribedAndGoesWithItsMachine(t *testing.T) {
	w := newWorld(t)
	w.launch("node-a")
	found := w.ask(&pb.NodeRef{Name: "node-a", Uid: "a"})
	one := found.GetInstance()
	if one.GetProviderId() != "gce://test-project/zone-a/node-a" || one.GetZone() != "zone-a" || one.GetInstanceType() != "e2-small" ||
		len(one.GetAddresses()) != 1 || one.GetAddresses()[0].GetAddress() != "10.0.0.1" {
		t.Error(found)
	}
	known := &pb.NodeRef{Name: "node-a", Uid: "a", ProviderId: one.GetProviderId()}
	if found := w.ask(known); found.GetState() != pb.InstanceState_INSTANCE_STATE_RUNNING || found.GetError() != nil {
		t.Error(found)
	}
	if err := os.Remove(filepath.Join(w.folder, "machines", "node-a")); err != nil {
		t.Fatal(err)
	}
	if gone := w.ask(known); gone.GetState() != pb.InstanceState_INSTANCE_STATE_ABSENT || !gone.GetAuthoritative() {
		t.Error(gone)
	}
	if never := w.ask(&pb.NodeRef{Name: "node-b", Uid: "b"}); never.GetState() != pb.InstanceState_INSTANCE_STATE_ABSENT || never.GetAuthoritative() {
		t.Error(never)
	}
	if foreign := w.ask(&pb.NodeRef{Name: "c", Uid: "c", ProviderId: "aws://c"}); foreign.GetState() != pb.InstanceState_INSTANCE_STATE_NOT_OWNED {
		t.Error(foreign)
	}
}

// The provider keeps its cluster's ID in a ConfigMap, so balancers need credentials for the cluster; tests/e2e has them.
func TestABalancerNeedsAKubeconfig(t *testing.T) {
	w := newWorld(t)
	_, err := pb.NewLoadBalancersClient(w.conn).EnsureLoadBalancer(w.ctx, &pb.EnsureLoadBalancerRequest{
		Cluster: cluster(), Fencing: &pb.Fencing{}, DesiredDigest: "1", Backends: &pb.BackendSet{},
		Service: &pb.Service{
			Ref:   &pb.ServiceRef{Namespace: "default", Name: "web", Uid: "5e7c1a9e-0000-4000-8000-000000000001"},
			Ports: []*pb.ServicePort{{Protocol: pb.Protocol_PROTOCOL_TCP, Port: 80, NodePort: 30080}},
		},
	})
	told, _ := fault.FromStatus(err)
	if text := told.Message(); !strings.Contains(text, "--kubeconfig") || !strings.Contains(text, "configmaps") {
		t.Error(text)
	}
}
