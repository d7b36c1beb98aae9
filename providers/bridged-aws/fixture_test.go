package main_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cloudprovider.ccm/bridged-aws/emulator"
	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/bridge"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cloudprovider "k8s.io/cloud-provider"
	aws "k8s.io/cloud-provider-aws/pkg/providers/v1"
	"k8s.io/klog/v2"
)

// patience is generous: a wait ends as soon as its condition holds.
const patience = 2 * time.Minute

// world is an emulated AWS with a cluster's network, and the AWS provider behind its bridge.
type world struct {
	*testing.T
	ctx     context.Context
	cloud   *emulator.Cloud
	network emulator.Network
	conn    *grpc.ClientConn
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, done := context.WithTimeout(context.Background(), patience)
	t.Cleanup(done)
	url, cloud, network := emulated(ctx, t)
	w := &world{T: t, ctx: ctx, cloud: cloud, network: network}
	w.serve(url)
	return w
}

// emulated starts an AWS with a cluster's network, and returns its URL, a client of it, and the network.
func emulated(ctx context.Context, t *testing.T) (string, *emulator.Cloud, emulator.Network) {
	t.Helper()
	moto := must(emulator.Start(ctx, t.Output()))(t)
	t.Cleanup(func() { moto.Stop() })
	cloud := emulator.At(moto.URL)
	return moto.URL, cloud, must(cloud.MakeNetwork(ctx))(t)
}

// serve does what main does, but logs to the test's output.
func (w *world) serve(url string) {
	w.Helper()
	for name, value := range emulator.Environment {
		w.Setenv(name, value)
	}
	folder := w.TempDir()
	config := filepath.Join(folder, "cloud.conf")
	if err := os.WriteFile(config, []byte(w.network.Config(url)), 0o600); err != nil {
		w.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(w.Output(), nil))
	klog.SetSlogLogger(log)
	cloud := must(cloudprovider.InitCloudProvider(aws.ProviderName, config))(w.T)
	provider := must(bridge.New(cloud, bridge.WithInitializeAtStart(true), bridge.WithSDKOptions(sdk.WithLogger(log))))(w.T)
	socket := must(os.MkdirTemp("", "aws"))(w.T)
	path := filepath.Join(socket, "p.sock")
	server := must(sdk.Listen(provider, sdk.WithEndpoint(path), sdk.WithoutSignals(), sdk.WithShutdownGrace(time.Second)))(w.T)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(context.Background()) }()
	w.conn = must(grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials())))(w.T)
	w.Cleanup(func() {
		w.conn.Close()
		provider.Stop()
		if err := <-ended; err != nil {
			w.Error(err)
		}
		os.RemoveAll(socket)
	})
}

// launch runs an instance, and returns it with the node that its kubelet registers.
func (w *world) launch(zone string) (emulator.Instance, *pb.NodeRef) {
	w.Helper()
	machine := must(w.cloud.Launch(w.ctx, w.network, zone, 1, "", ""))(w.T)[0]
	return machine, &pb.NodeRef{Name: machine.Node, Uid: "uid-of-" + machine.ID}
}

// initialized runs an instance, and returns it with its node as the host has initialised it.
func (w *world) initialized(zone string) (emulator.Instance, *pb.NodeRef) {
	w.Helper()
	machine, node := w.launch(zone)
	node.ProviderId = machine.ProviderID()
	return machine, node
}

// ask looks up nodes, and returns the results by node name.
func (w *world) ask(nodes ...*pb.NodeRef) map[string]*pb.InstanceResult {
	w.Helper()
	request := &pb.BatchGetInstancesRequest{Cluster: cluster(), View: pb.InstanceView_INSTANCE_VIEW_ALL}
	for _, node := range nodes {
		request.Queries = append(request.Queries, &pb.InstanceQuery{Key: node.GetName(), Node: node})
	}
	answers := map[string]*pb.InstanceResult{}
	for _, answer := range must(pb.NewInstancesClient(w.conn).BatchGetInstances(w.ctx, request))(w.T).GetResults() {
		answers[answer.GetKey()] = answer
	}
	return answers
}

func cluster() *pb.ClusterRef { return &pb.ClusterRef{Uid: "cluster-1", Name: "kubernetes"} }

// must returns a call's value, and fails the test on an error.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
