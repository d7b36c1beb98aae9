package bridge

import (
	"context"
	"fmt"
	"sync/atomic"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
)

// hangingPerCall is how many calls may hang for each that may run: enough for a location that does not answer, and not
// without end.
const hangingPerCall = 16

// health tells of a provider that does not answer, as far as its calls show it.
type health struct{ *bridge }

func (h health) GetStatus(context.Context, *pb.GetStatusRequest) (*pb.GetStatusResponse, error) {
	unreachable := func(reason, message string) (*pb.GetStatusResponse, error) {
		return &pb.GetStatusResponse{Conditions: []*pb.ProviderCondition{{
			Type: pb.ConditionType_CONDITION_TYPE_CLOUD_REACHABLE, Status: pb.ConditionStatus_CONDITION_STATUS_FALSE,
			Reason: reason, Message: message,
		}}}, nil
	}
	if calls, stuck := h.reads.hangs(); stuck {
		return unreachable("CallsHang",
			fmt.Sprintf("%d calls of the cloud provider do not return; nothing more is read until some do", calls))
	}
	switch h.reachable.last.Load() {
	case answered:
		return &pb.GetStatusResponse{Conditions: []*pb.ProviderCondition{{
			Type:   pb.ConditionType_CONDITION_TYPE_CLOUD_REACHABLE,
			Status: pb.ConditionStatus_CONDITION_STATUS_TRUE, Reason: "ReadsSucceed",
		}}}, nil
	case inVain:
		return unreachable("ReadsFail", "the cloud provider could answer for no instance that it was last asked about")
	}
	return &pb.GetStatusResponse{}, nil
}

// What became of the last batch of instances.
const (
	answered = 1
	inVain   = 2
)

// reachable is whether the last batch of instances was wholly in vain. An error of the old kind does not say why it is one, but
// where no question has an answer, nothing shall be destroyed. "Not found" is an answer.
type reachable struct{ last atomic.Int32 }

func (r *reachable) saw(results []*pb.InstanceResult) {
	failed, asked := 0, 0
	for _, result := range results {
		if result.GetState() == pb.InstanceState_INSTANCE_STATE_NOT_OWNED {
			continue // The provider was not asked.
		}
		asked++
		switch result.GetError().GetReason() {
		case pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, pb.ErrorReason_ERROR_REASON_LOCATION_UNREACHABLE,
			pb.ErrorReason_ERROR_REASON_CLOUD_API_UNAVAILABLE:
			failed++
		}
	}
	switch {
	case asked == 0:
	case failed == asked:
		r.last.Store(inVain)
	default:
		r.last.Store(answered)
	}
}

// hangingCalls is the metric of calls that do not return.
func (b *bridge) hangingCalls() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "cloudprovider_bridge_hanging_calls",
		Help:        "Reads of the bridged provider that run though nobody waits for them any more.",
		ConstLabels: prometheus.Labels{"role": "provider"},
	}, func() float64 {
		calls, _ := b.reads.hangs()
		return float64(calls)
	})
}
