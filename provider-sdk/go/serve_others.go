package sdk

import pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"

// The embedded interface of the provider implements the methods that need nothing more.
type (
	loadBalancersServer struct {
		pb.UnsafeLoadBalancersServer
		LoadBalancers
	}
	routesServer struct {
		pb.UnsafeRoutesServer
		Routes
	}
	volumesServer struct {
		pb.UnsafeVolumesServer
		Volumes
	}
	clustersServer struct {
		pb.UnsafeClustersServer
		Clusters
	}
)
