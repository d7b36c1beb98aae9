// Package checks looks at every call before a method sees it, in the contract's fixed order: the peer (done where
// connections are accepted), the leader's epoch, the shape of the arguments, sets of backends by their digests. Rights in the
// cloud and existence are the provider's to check, in this order.
package checks

import (
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// Limits are the advertised sizes, with the contract's defaults filled in.
type Limits struct {
	BatchInstances, BatchLoadBalancers, BatchRoutes, BatchVolumes, PageSize uint32
}

// What requests have in common, as their generated getters say it.
type (
	clustered interface{ GetCluster() *pb.ClusterRef }
	fenced    interface{ GetFencing() *pb.Fencing }
	paged     interface {
		clustered
		GetPageSize() int32
		GetPageToken() string
	}
)

// Cluster answers on whose behalf a request is made; nil when it names no cluster.
func Cluster(request any) *pb.ClusterRef {
	if request, named := request.(clustered); named {
		return request.GetCluster()
	}
	return nil
}

// Fencing answers the leader's epoch of a request; nil where there is none.
func Fencing(request any) *pb.Fencing {
	if request, is := request.(fenced); is {
		return request.GetFencing()
	}
	return nil
}

// Items answers how many items a batch has; false for a call about one thing.
func Items(request any) (int, bool) {
	switch request := request.(type) {
	case *pb.BatchGetInstancesRequest:
		return len(request.GetQueries()), true
	case *pb.BatchUpdateLoadBalancersRequest:
		return len(request.GetItems()), true
	case *pb.BatchEnsureRoutesRequest:
		return len(request.GetItems()), true
	case *pb.BatchDeleteRoutesRequest:
		return len(request.GetItems()), true
	case *pb.BatchGetVolumeLabelsRequest:
		return len(request.GetQueries()), true
	default:
		return 0, false
	}
}
