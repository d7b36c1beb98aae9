package sdk

import (
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Found is the result of a query whose instance exists; the system of record was read just now.
func Found(key string, state pb.InstanceState, instance *pb.Instance) *pb.InstanceResult {
	result := looked(key, state)
	result.Instance = instance
	return result
}

// Absent is the result of a query whose instance does not exist: the provider looked where it must be, with permission
// to see it.
//
// If the query has a provider ID, this is evidence for deletion: return Unknown if the lookup failed or was incomplete.
// Without a provider ID it is not evidence, because a lookup by name may miss an instance.
func Absent(query *pb.InstanceQuery) *pb.InstanceResult {
	result := AbsentByKey(query)
	result.Authoritative = query.GetNode().GetProviderId() != ""
	return result
}

// AbsentByKey is Absent for a provider with CAPABILITY_INSTANCES_KEYED_BY_NAME: the name alone is evidence.
func AbsentByKey(query *pb.InstanceQuery) *pb.InstanceResult {
	return looked(query.GetKey(), pb.InstanceState_INSTANCE_STATE_ABSENT)
}

// NotOwned is the result of a query whose instance belongs to another cloud, account or region.
func NotOwned(key string) *pb.InstanceResult {
	return &pb.InstanceResult{Key: key, State: pb.InstanceState_INSTANCE_STATE_NOT_OWNED}
}

// Unknown is the result of a query whose instance is in an unknown state, with the reason. The other queries of the
// batch are unaffected.
func Unknown(key string, why error) *pb.InstanceResult {
	return &pb.InstanceResult{Key: key, Error: fault.Item(why)}
}

func looked(key string, state pb.InstanceState) *pb.InstanceResult {
	return &pb.InstanceResult{Key: key, State: state, Authoritative: true, ObservedAt: timestamppb.Now()}
}
