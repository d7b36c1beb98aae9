package checks

import (
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// Shape checks a request against the contract: nil, or the first violation.
func Shape(request any, limits Limits) error {
	if named, is := request.(clustered); is {
		if err := cluster(named.GetCluster()); err != nil {
			return err
		}
	}
	if led, is := request.(fenced); is {
		if err := present("fencing", led.GetFencing() != nil); err != nil {
			return err
		}
	}
	if list, is := request.(paged); is {
		if err := page(list); err != nil {
			return err
		}
	}
	return own(request, limits)
}

// own checks the fields of one kind of request.
func own(request any, limits Limits) error {
	switch request := request.(type) {
	case *pb.BatchGetInstancesRequest:
		return instanceQueries(request.GetQueries(), limits.BatchInstances)
	case *pb.WatchInstancesRequest:
		return short("resume_token", request.GetResumeToken(), maxLong)
	case *pb.AddSshKeyToAllInstancesRequest:
		return first(text("user", request.GetUser(), 32), text("public_key", request.GetPublicKey(), 16<<10))
	case *pb.GetLoadBalancerRequest:
		return service("service", request.GetService())
	case *pb.EnsureLoadBalancerRequest:
		return ensureLoadBalancer(request)
	case *pb.BatchUpdateLoadBalancersRequest:
		return loadBalancerUpdates(request, limits.BatchLoadBalancers)
	case *pb.DeleteLoadBalancerRequest:
		return service("service", request.GetService())
	case *pb.BatchEnsureRoutesRequest:
		return routesToEnsure(request.GetItems(), limits.BatchRoutes)
	case *pb.BatchDeleteRoutesRequest:
		return routesToDelete(request.GetItems(), limits.BatchRoutes)
	case *pb.BatchGetVolumeLabelsRequest:
		return volumeQueries(request.GetQueries(), limits.BatchVolumes)
	case *pb.GetControlPlaneEndpointRequest:
		return text("cluster_name", request.GetClusterName(), maxLong)
	default:
		return nil
	}
}

// Fit clamps optional values, so that the methods need not.
func Fit(request any, limits Limits) {
	switch request := request.(type) {
	case *pb.ListInstancesRequest:
		request.PageSize = pageSize(request.GetPageSize(), limits.PageSize)
	case *pb.ListLoadBalancersRequest:
		request.PageSize = pageSize(request.GetPageSize(), limits.PageSize)
	case *pb.ListRoutesRequest:
		request.PageSize = pageSize(request.GetPageSize(), limits.PageSize)
	case *pb.ListClustersRequest:
		request.PageSize = pageSize(request.GetPageSize(), limits.PageSize)
	}
}
