package bridge

import (
	"context"
	"fmt"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
)

// hangingPerCall is how many calls may hang for each that may run: enough for a location that does not answer, and not
// without end.
const hangingPerCall = 16

// health tells of calls that do not return.
type health struct{ *bridge }

func (h health) GetStatus(context.Context, *pb.GetStatusRequest) (*pb.GetStatusResponse, error) {
	calls, stuck := h.reads.hangs()
	if !stuck {
		return &pb.GetStatusResponse{}, nil
	}
	return &pb.GetStatusResponse{Conditions: []*pb.ProviderCondition{{
		Type: pb.ConditionType_CONDITION_TYPE_CLOUD_REACHABLE, Status: pb.ConditionStatus_CONDITION_STATUS_FALSE,
		Reason:  "CallsHang",
		Message: fmt.Sprintf("%d calls of the cloud provider do not return; nothing more is read until some do", calls),
	}}}, nil
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
