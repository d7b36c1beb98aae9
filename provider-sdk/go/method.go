package sdk

import (
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	discovery "cloudprovider.ccm/sdk/gen/ccm/discovery/v1"
	"google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Fully qualified names of the services, as Discovery lists them.
const (
	discoveryService     = "ccm.discovery.v1.Discovery"
	cloudProviderService = "ccm.cloudprovider.v1alpha1.CloudProvider"
	instancesService     = "ccm.cloudprovider.v1alpha1.Instances"
	loadBalancersService = "ccm.cloudprovider.v1alpha1.LoadBalancers"
	routesService        = "ccm.cloudprovider.v1alpha1.Routes"
	volumesService       = "ccm.cloudprovider.v1alpha1.Volumes"
	clustersService      = "ccm.cloudprovider.v1alpha1.Clusters"
	healthService        = "grpc.health.v1.Health"
	reflectionService    = "grpc.reflection.v1.ServerReflection"
)

// method is an RPC of a bounded list.
type method struct {
	service, name string
	kind          kind
}

type kind int

const (
	// always is answered from memory, in any state of the process.
	always kind = iota
	// read may be cancelled.
	read
	// word is a leader's: answered while the process stops too, since running mutations last as long as its term.
	word
	// mutation runs until it is done, unless its term ends.
	mutation
)

// unknownMethod stands for any RPC outside the contract.
var unknownMethod = method{service: "other", name: "other"}

// methods holds the contract's RPCs by full name, from its descriptors.
var methods = func() map[string]method {
	found := map[string]method{}
	for _, file := range []protoreflect.FileDescriptor{
		discovery.File_ccm_discovery_v1_discovery_proto,
		pb.File_ccm_cloudprovider_v1alpha1_cloud_provider_proto,
		pb.File_ccm_cloudprovider_v1alpha1_instances_proto,
		pb.File_ccm_cloudprovider_v1alpha1_load_balancers_proto,
		pb.File_ccm_cloudprovider_v1alpha1_routes_proto,
		pb.File_ccm_cloudprovider_v1alpha1_volumes_proto,
		pb.File_ccm_cloudprovider_v1alpha1_clusters_proto,
		grpc_health_v1.File_grpc_health_v1_health_proto,
		reflectionv1.File_grpc_reflection_v1_reflection_proto,
	} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				one := service.Methods().Get(j)
				full := "/" + string(service.FullName()) + "/" + string(one.Name())
				found[full] = method{string(service.FullName()), string(one.Name()), kindOf(service, one)}
			}
		}
	}
	return found
}()

func kindOf(service protoreflect.ServiceDescriptor, one protoreflect.MethodDescriptor) kind {
	if service.ParentFile().Package() != "ccm.cloudprovider.v1alpha1" || one.Name() == "GetCapabilities" {
		return always
	}
	options, _ := one.Options().(*descriptorpb.MethodOptions)
	switch {
	case one.Name() == "Lead":
		return word
	case options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS:
		return read
	}
	return mutation
}

func methodOf(full string) method {
	if found, known := methods[full]; known {
		return found
	}
	return unknownMethod
}
