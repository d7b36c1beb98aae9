package sdk

import (
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Found answers a query: the instance is there, read from the place that decides it, now.
func Found(key string, state pb.InstanceState, instance *pb.Instance) *pb.InstanceResult {
	result := looked(key, state)
	result.Instance = instance
	return result
}

// Absent answers a query: the instance was looked for where it must be, with the rights to see it, and is not there.
//
// With a provider ID in the query this is evidence for deletion: answer Unknown whenever the look itself failed or saw only a
// part. Without one it is not, since an instance may be missed by its name.
func Absent(query *pb.InstanceQuery) *pb.InstanceResult {
	result := AbsentByKey(query)
	result.Authoritative = query.GetNode().GetProviderId() != ""
	return result
}

// AbsentByKey is Absent for a provider with CAPABILITY_INSTANCES_KEYED_BY_NAME: the name alone is evidence, too.
func AbsentByKey(query *pb.InstanceQuery) *pb.InstanceResult {
	return looked(query.GetKey(), pb.InstanceState_INSTANCE_STATE_ABSENT)
}

// NotOwned answers a query: the instance belongs to another cloud, account or region.
func NotOwned(key string) *pb.InstanceResult {
	return &pb.InstanceResult{Key: key, State: pb.InstanceState_INSTANCE_STATE_NOT_OWNED}
}

// Unknown answers a query: nothing is known about the instance, and why. The other queries of the batch are none the worse
// for it.
func Unknown(key string, why error) *pb.InstanceResult {
	return &pb.InstanceResult{Key: key, Error: fault.Item(why)}
}

func looked(key string, state pb.InstanceState) *pb.InstanceResult {
	return &pb.InstanceResult{Key: key, State: state, Authoritative: true, ObservedAt: timestamppb.Now()}
}
