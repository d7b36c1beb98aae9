package sdk_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"cloudprovider.ccm/sdk"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	discovery "cloudprovider.ccm/sdk/gen/ccm/discovery/v1"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
)

// [R:discovery-services] [R:discovery-epoch]
func TestDiscoverySaysWhatIsServed(t *testing.T) {
	epochs := map[string]bool{}
	for range 2 {
		made := provider(t, &cloud{}, sdk.WithVendorVersion("v7"))
		client := discovery.NewDiscoveryClient(serve(t, made).dial(t))
		answer, err := client.GetInfo(soon(t), &discovery.GetInfoRequest{HostName: "host"})
		if err != nil {
			t.Fatal(err)
		}
		again, err := client.GetInfo(soon(t), &discovery.GetInfoRequest{})
		if err != nil || !proto.Equal(answer, again) {
			t.Errorf("it changed to %v %v", again, err)
		}
		want := []string{
			"ccm.discovery.v1.Discovery", "ccm.cloudprovider.v1alpha1.CloudProvider", "ccm.cloudprovider.v1alpha1.Instances",
			"ccm.cloudprovider.v1alpha1.LoadBalancers", "grpc.health.v1.Health",
		}
		if answer.GetName() != "test" || answer.GetVendorVersion() != "v7" || answer.GetSdkName() != "cloudprovider-sdk (go)" ||
			!slices.Equal(answer.GetServices(), want) || answer.GetProviderIdPrefixes()[0] != "test://" {
			t.Errorf("got %v", answer)
		}
		epochs[answer.GetProcessEpoch()] = true
	}
	if len(epochs) != 2 || epochs[""] {
		t.Errorf("epochs are %v", epochs)
	}
}

// [R:capabilities-constant]
func TestCapabilitiesAreSeenFromMethods(t *testing.T) {
	for name, row := range map[string]struct {
		options []sdk.Option
		want    []pb.Capability
	}{
		"all": {nil, []pb.Capability{
			pb.Capability_CAPABILITY_INSTANCES_WATCH, pb.Capability_CAPABILITY_INSTANCES_LIST,
			pb.Capability_CAPABILITY_BACKEND_SETS_BY_DIGEST, pb.Capability_CAPABILITY_LEADERSHIP,
		}},
		"instances only": {[]sdk.Option{sdk.WithInstances(onlyInstances{&cloud{}}), sdk.WithLoadBalancers(nil)}, nil},
		"leaderless": {[]sdk.Option{sdk.WithoutLeadership(), sdk.WithInstances(onlyInstances{&cloud{}})}, []pb.Capability{
			pb.Capability_CAPABILITY_BACKEND_SETS_BY_DIGEST,
		}},
		"works while led": {
			[]sdk.Option{
				sdk.WithInstances(onlyInstances{&cloud{}}), sdk.WithLoadBalancers(nil),
				sdk.WithWhileLeading(func(context.Context, *pb.ClusterRef) {}),
			},
			[]pb.Capability{pb.Capability_CAPABILITY_LEADERSHIP},
		},
		"told, too": {
			[]sdk.Option{
				sdk.WithInstances(onlyInstances{&cloud{}}), sdk.WithLoadBalancers(nil),
				sdk.WithCapabilities(&pb.GetCapabilitiesResponse{
					Capabilities: []pb.Capability{pb.Capability_CAPABILITY_INSTANCE_POD_CIDRS},
				}),
			},
			[]pb.Capability{pb.Capability_CAPABILITY_INSTANCE_POD_CIDRS},
		},
	} {
		client := pb.NewCloudProviderClient(serve(t, provider(t, &cloud{}, row.options...)).dial(t))
		answer, err := client.GetCapabilities(soon(t), &pb.GetCapabilitiesRequest{})
		if err != nil || !slices.Equal(answer.GetCapabilities(), row.want) {
			t.Errorf("%s: %v %v", name, answer, err)
		}
	}
}

type conditions struct{}

func (conditions) GetStatus(context.Context, *pb.GetStatusRequest) (*pb.GetStatusResponse, error) {
	return &pb.GetStatusResponse{Conditions: []*pb.ProviderCondition{{Reason: "Told"}}}, nil
}

func TestStatusIsOptional(t *testing.T) {
	for want, options := range map[int][]sdk.Option{0: nil, 1: {sdk.WithStatus(conditions{})}} {
		client := pb.NewCloudProviderClient(serve(t, provider(t, &cloud{}, options...)).dial(t))
		answer, err := client.GetStatus(soon(t), &pb.GetStatusRequest{})
		if err != nil || len(answer.GetConditions()) != want {
			t.Errorf("got %v %v", answer, err)
		}
	}
}

func TestHealthFollowsTheProvider(t *testing.T) {
	const instances = "ccm.cloudprovider.v1alpha1.Instances"
	served := serve(t, provider(t, &cloud{}))
	client := healthpb.NewHealthClient(served.dial(t))
	check := func(service string) string {
		answer, err := client.Check(soon(t), &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			return err.Error()
		}
		return answer.GetStatus().String()
	}
	if check("") != "SERVING" || check(instances) != "SERVING" || !strings.Contains(check("x"), "NotFound") {
		t.Error(check(""), check(instances), check("x"))
	}
	if !served.SetServiceServing(instances, false) || served.SetServiceServing("x", false) {
		t.Error("the wrong services are known")
	}
	if check("") != "SERVING" || check(instances) != "NOT_SERVING" {
		t.Error(check(""), check(instances))
	}
	list, err := client.List(soon(t), &healthpb.HealthListRequest{})
	if err != nil || list.GetStatuses()[instances].GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING || len(list.GetStatuses()) != 6 {
		t.Error(list, err)
	}
	served.SetServing(false)
	if check("") != "NOT_SERVING" {
		t.Error(check(""))
	}
	served.SetServing(true)
	if check(instances) != "SERVING" {
		t.Error(check(instances))
	}
	unknown, err := client.Watch(soon(t), &healthpb.HealthCheckRequest{Service: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := unknown.Recv(); err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
		t.Error(got, err)
	}
}

func TestReflectionIsOffUnlessAsked(t *testing.T) {
	for _, on := range []bool{false, true} {
		var options []sdk.ServeOption
		if on {
			options = append(options, sdk.WithReflection())
		}
		conn := serve(t, provider(t, &cloud{}), options...).dial(t)
		info, err := discovery.NewDiscoveryClient(conn).GetInfo(soon(t), &discovery.GetInfoRequest{})
		if err != nil || slices.Contains(info.GetServices(), "grpc.reflection.v1.ServerReflection") != on {
			t.Error(info, err)
		}
		ctx, cancel := context.WithCancel(soon(t))
		stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
		if err != nil {
			t.Fatal(err)
		}
		ask := &reflectionv1.ServerReflectionRequest{
			MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{
				FileContainingSymbol: "ccm.cloudprovider.v1alpha1.Instances",
			},
		}
		// The call is already refused: the stream returns EOF here, and the reason when it is read.
		if err := stream.Send(ask); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if on && (err != nil || len(answer.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0) {
			t.Error(answer, err)
		}
		if !on {
			expect(t, err, codes.Unimplemented, 0)
		}
		cancel()
	}
}
