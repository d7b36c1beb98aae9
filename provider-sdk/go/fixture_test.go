package sdk_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// patience is a limit that only failing tests reach.
const patience = time.Minute

// cloud is a provider whose methods each test replaces; the others return empty responses.
type cloud struct {
	batchGet func(context.Context, *pb.BatchGetInstancesRequest) (*pb.BatchGetInstancesResponse, error)
	watch    func(context.Context, *pb.WatchInstancesRequest) (*sdk.Watch, error)
	list     func(context.Context, *pb.ListInstancesRequest) (*pb.ListInstancesResponse, error)
	ensure   func(context.Context, *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error)
	update   func(context.Context, *pb.BatchUpdateLoadBalancersRequest) (*pb.BatchUpdateLoadBalancersResponse, error)
}

func (c *cloud) BatchGetInstances(ctx context.Context, request *pb.BatchGetInstancesRequest) (*pb.BatchGetInstancesResponse, error) {
	if c.batchGet != nil {
		return c.batchGet(ctx, request)
	}
	answer := &pb.BatchGetInstancesResponse{}
	for _, query := range request.GetQueries() {
		answer.Results = append(answer.Results, sdk.Absent(query))
	}
	return answer, nil
}

func (c *cloud) WatchInstances(ctx context.Context, request *pb.WatchInstancesRequest) (*sdk.Watch, error) {
	return c.watch(ctx, request)
}

func (c *cloud) ListInstances(ctx context.Context, request *pb.ListInstancesRequest) (*pb.ListInstancesResponse, error) {
	return c.list(ctx, request)
}

func (c *cloud) GetLoadBalancer(context.Context, *pb.GetLoadBalancerRequest) (*pb.GetLoadBalancerResponse, error) {
	return nil, nil
}

func (c *cloud) EnsureLoadBalancer(ctx context.Context, request *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
	if c.ensure == nil {
		return &pb.EnsureLoadBalancerResponse{}, nil
	}
	return c.ensure(ctx, request)
}

func (c *cloud) BatchUpdateLoadBalancers(ctx context.Context, request *pb.BatchUpdateLoadBalancersRequest) (*pb.BatchUpdateLoadBalancersResponse, error) {
	return c.update(ctx, request)
}

func (c *cloud) DeleteLoadBalancer(context.Context, *pb.DeleteLoadBalancerRequest) (*pb.DeleteLoadBalancerResponse, error) {
	return &pb.DeleteLoadBalancerResponse{}, nil
}

func (c *cloud) ListLoadBalancers(context.Context, *pb.ListLoadBalancersRequest) (*pb.ListLoadBalancersResponse, error) {
	return &pb.ListLoadBalancersResponse{}, nil
}

// onlyInstances hides the optional interfaces of a value.
type onlyInstances struct{ sdk.Instances }

// served is a provider that is being served.
type served struct {
	*sdk.Provider
	*sdk.Server
	path  string
	ended chan error
}

// provider creates one from the whole cloud, with the given options last.
func provider(t *testing.T, cloud *cloud, options ...sdk.Option) *sdk.Provider {
	t.Helper()
	options = append([]sdk.Option{
		sdk.WithProviderIDPrefix("test://"), sdk.WithInstances(cloud), sdk.WithLoadBalancers(cloud),
		sdk.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))),
	}, options...)
	made, err := sdk.New("test", options...)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// serve serves it on its own socket until the test ends.
func serve(t *testing.T, made *sdk.Provider, options ...sdk.ServeOption) *served {
	t.Helper()
	path := socketPath(t)
	options = append([]sdk.ServeOption{sdk.WithEndpoint("unix://" + path), sdk.WithoutSignals()}, options...)
	server, err := sdk.Listen(made, options...)
	if err != nil {
		t.Fatal(err)
	}
	out := &served{made, server, path, make(chan error, 1)}
	go func() { out.ended <- server.Serve(context.Background()) }()
	t.Cleanup(func() {
		made.Stop()
		out.wait(t)
	})
	return out
}

// wait waits until serving has ended.
func (s *served) wait(t *testing.T) {
	t.Helper()
	select {
	case err := <-s.ended:
		if err != nil {
			t.Errorf("serving ended with %v", err)
		}
		s.ended <- nil
	case <-time.After(patience):
		t.Error("serving does not end")
	}
}

func (s *served) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+s.path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// socketPath is short enough wherever the tests' own directories are.
func socketPath(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "sdk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return filepath.Join(folder, "p.sock")
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, done := context.WithTimeout(context.Background(), patience)
	t.Cleanup(done)
	return ctx
}

// expect checks the code and the reason of an error; an empty reason means that it has none of ours.
func expect(t *testing.T, err error, code codes.Code, reason pb.ErrorReason) {
	t.Helper()
	found, ours := fault.FromStatus(err)
	if status.Code(err) != code || ours != (reason != 0) || (ours && found.Reason() != reason) {
		t.Errorf("got %v, want %v %v", err, code, reason)
	}
}

func receive[T any](t *testing.T, from <-chan T, what string) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Fatalf("%s never came", what)
	}
	return got
}

func clusterRef() *pb.ClusterRef { return &pb.ClusterRef{Uid: "cluster-1"} }

func queries(keys ...string) *pb.BatchGetInstancesRequest {
	request := &pb.BatchGetInstancesRequest{Cluster: clusterRef()}
	for _, key := range keys {
		request.Queries = append(request.Queries, &pb.InstanceQuery{Key: key, Node: &pb.NodeRef{Name: "node-" + key}})
	}
	return request
}

func ensureRequest() *pb.EnsureLoadBalancerRequest {
	return &pb.EnsureLoadBalancerRequest{
		Cluster: clusterRef(), Fencing: &pb.Fencing{}, Service: service("service-1"),
		Backends: &pb.BackendSet{}, DesiredDigest: "d",
	}
}

func service(uid string) *pb.Service {
	return &pb.Service{Ref: &pb.ServiceRef{Namespace: "default", Name: "web", Uid: uid}}
}

// buffer is a log that supports concurrent writes.
type buffer struct {
	mu   sync.Mutex
	text []byte
}

func (b *buffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, line...)
	return len(line), nil
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}
