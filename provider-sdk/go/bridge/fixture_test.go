package bridge_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/bridge"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/fake"
)

const patience = time.Minute

// cloud is upstream's test double, with methods that each test replaces.
type cloud struct {
	*fake.Cloud
	noClusterID bool
	exists      func(context.Context, *v1.Node) (bool, error)
	shutdown    func(context.Context, *v1.Node) (bool, error)
	metadata    func(context.Context, *v1.Node) (*cloudprovider.InstanceMetadata, error)
	ensure      func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error)
	update      func(context.Context, *v1.Service, []*v1.Node) error
	remove      func(context.Context, *v1.Service) error
	// stands replaces Exists.
	stands func(*v1.Service) bool
}

func (c *cloud) HasClusterID() bool { return !c.noClusterID }

func (c *cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c, c.EnableInstancesV2 }

func (c *cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, !c.DisableLoadBalancers }

func (c *cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	if c.exists == nil {
		return true, nil
	}
	return c.exists(ctx, node)
}

func (c *cloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	if c.shutdown == nil {
		return false, cloudprovider.NotImplemented
	}
	return c.shutdown(ctx, node)
}

func (c *cloud) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	if c.metadata == nil {
		return &cloudprovider.InstanceMetadata{ProviderID: "fake://" + node.Name}, nil
	}
	return c.metadata(ctx, node)
}

func (c *cloud) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	if c.stands == nil {
		return c.Cloud.GetLoadBalancer(ctx, cluster, service)
	}
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}}, c.stands(service), nil
}

func (c *cloud) EnsureLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	if c.ensure == nil {
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}}, nil
	}
	return c.ensure(ctx, service, nodes)
}

func (c *cloud) UpdateLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) error {
	if c.update == nil {
		return nil
	}
	return c.update(ctx, service, nodes)
}

func (c *cloud) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *v1.Service) error {
	if c.remove == nil {
		return nil
	}
	return c.remove(ctx, service)
}

// newer and older are the two generations of interfaces.
func newer() *cloud { return &cloud{Cloud: &fake.Cloud{EnableInstancesV2: true}} }

func older() *cloud { return &cloud{Cloud: &fake.Cloud{}} }

// serve serves a bridged provider on its own socket until the test ends.
func serve(t testing.TB, cloud cloudprovider.Interface, options ...bridge.Option) *grpc.ClientConn {
	t.Helper()
	quiet := sdk.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	provider, err := bridge.New(cloud, append([]bridge.Option{bridge.WithInitializeAtStart(true), bridge.WithSDKOptions(quiet)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "bridge")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "p.sock")
	server, err := sdk.Listen(provider, sdk.WithEndpoint(path), sdk.WithoutSignals(), sdk.WithShutdownGrace(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(context.Background()) }()
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		provider.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		os.RemoveAll(folder)
	})
	return conn
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, done := context.WithTimeout(context.Background(), patience)
	t.Cleanup(done)
	return ctx
}

// inTime returns the answer to a call whose time ends while it runs: a second, and twice as long after each call that a busy
// machine did not answer in time.
func inTime[Answer any](t *testing.T, call func(context.Context) (Answer, error)) Answer {
	t.Helper()
	for within := time.Second; ; within *= 2 {
		ctx, done := context.WithTimeout(context.Background(), within)
		answer, err := call(ctx)
		done()
		if err == nil {
			return answer
		}
		if status.Code(err) != codes.DeadlineExceeded || within > patience {
			t.Fatal(err)
		}
	}
}

// expect checks the code and the reason of an error.
func expect(t *testing.T, err error, code codes.Code, reason pb.ErrorReason) {
	t.Helper()
	found, ours := fault.FromStatus(err)
	if status.Code(err) != code || !ours || found.Reason() != reason {
		t.Errorf("got %v, want %v %v", err, code, reason)
	}
}

func clusterRef() *pb.ClusterRef { return &pb.ClusterRef{Uid: "cluster-1", Name: "name-1"} }
