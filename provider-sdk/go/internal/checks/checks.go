// Package checks examines every call before it reaches a method, in the contract's fixed order: the peer (done where
// connections are accepted), the leader's epoch, the shape of the arguments, backend sets by digest. Permissions in the
// cloud and existence are left to the provider, in that order.
package checks

import (
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// The fields that requests have in common, by their generated getters.
type (
	clustered interface{ GetCluster() *pb.ClusterRef }
	fenced    interface{ GetFencing() *pb.Fencing }
	paged     interface{ GetPageSize() int32 }
)

// Cluster returns the cluster of a request; nil if it names none.
func Cluster(request any) *pb.ClusterRef {
	if request, named := request.(clustered); named {
		return request.GetCluster()
	}
	return nil
}

// Fencing returns the leader's epoch of a request; nil if it has none.
func Fencing(request any) *pb.Fencing {
	if request, is := request.(fenced); is {
		return request.GetFencing()
	}
	return nil
}

// Items returns the number of items in a batch; false if the request is not a batch.
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
