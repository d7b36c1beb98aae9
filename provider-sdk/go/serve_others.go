package sdk

import pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"

// Methods that are passed on unchanged come from the embedded interface of the provider.
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
