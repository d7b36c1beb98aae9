package sdk

import (
	"cmp"
	"slices"
	"time"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The contract's defaults for values that a provider does not advertise.
const (
	defaultBatch            = 500
	defaultPageSize         = 500
	defaultReads            = 16
	defaultMutations        = 8
	defaultMessageBytes     = 16 << 20
	defaultBookmarkInterval = 30 * time.Second
	defaultWatchMaxAge      = 30 * time.Minute
)

// advertised is what a provider advertises: the response of GetCapabilities, and the values in it that this package uses.
type advertised struct {
	answer *pb.GetCapabilitiesResponse
	// None of them is left to its default.
	limits           *pb.Limits
	messageBytes     int
	bookmarkInterval time.Duration
	watchMaxAge      time.Duration
}

func advertise(answer *pb.GetCapabilitiesResponse) advertised {
	limits, intervals := answer.GetLimits(), answer.GetIntervals()
	return advertised{
		answer: answer,
		limits: &pb.Limits{
			MaxBatchInstances:      cmp.Or(limits.GetMaxBatchInstances(), defaultBatch),
			MaxBatchLoadBalancers:  cmp.Or(limits.GetMaxBatchLoadBalancers(), defaultBatch),
			MaxBatchRoutes:         cmp.Or(limits.GetMaxBatchRoutes(), defaultBatch),
			MaxBatchVolumes:        cmp.Or(limits.GetMaxBatchVolumes(), defaultBatch),
			MaxPageSize:            cmp.Or(limits.GetMaxPageSize(), defaultPageSize),
			MaxConcurrentReads:     cmp.Or(limits.GetMaxConcurrentReads(), defaultReads),
			MaxConcurrentMutations: cmp.Or(limits.GetMaxConcurrentMutations(), defaultMutations),
		},
		messageBytes:     int(cmp.Or(limits.GetMaxMessageBytes(), defaultMessageBytes)),
		bookmarkInterval: interval(intervals.GetBookmarkInterval(), defaultBookmarkInterval),
		watchMaxAge:      interval(intervals.GetWatchMaxAge(), defaultWatchMaxAge),
	}
}

func (a advertised) has(capability pb.Capability) bool {
	return slices.Contains(a.answer.GetCapabilities(), capability)
}

func interval(value *durationpb.Duration, fallback time.Duration) time.Duration {
	if value == nil {
		return fallback
	}
	return value.AsDuration()
}

// traitsOf returns what a capability belongs to, as the contract says; nil if it knows no such capability.
func traitsOf(capability pb.Capability) *pb.CapabilityTraits {
	value := capability.Descriptor().Values().ByNumber(capability.Number())
	if value == nil {
		return nil
	}
	traits, _ := proto.GetExtension(value.Options(), pb.E_Capability).(*pb.CapabilityTraits)
	return traits
}

// capabilityOf is the capability that an RPC needs, by its name.
var capabilityOf = func() map[string]pb.Capability {
	found := map[string]pb.Capability{}
	for number := range pb.Capability_name {
		if rpc := traitsOf(pb.Capability(number)).GetRpc(); rpc != "" {
			found[rpc] = pb.Capability(number)
		}
	}
	return found
}()
