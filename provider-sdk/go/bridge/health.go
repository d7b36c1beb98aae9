package bridge

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// hangingPerCall is how many calls may hang for each call that may run: enough for one unresponsive location, but bounded.
const hangingPerCall = 16

// health reports whether the cloud responds, as far as the provider's calls show it.
type health struct{ *bridge }

func (h health) GetStatus(context.Context, *pb.GetStatusRequest) (*pb.GetStatusResponse, error) {
	if h.leading.waits() {
		return &pb.GetStatusResponse{Conditions: []*pb.ProviderCondition{{
			Type: pb.ConditionType_CONDITION_TYPE_CLOUD_REACHABLE, Reason: "NotLed", Message: notLed,
		}}}, nil
	}
	told := func(status pb.ConditionStatus, reason, message string, types ...pb.ConditionType) (*pb.GetStatusResponse, error) {
		answer := &pb.GetStatusResponse{}
		for _, one := range types {
			answer.Conditions = append(answer.Conditions, &pb.ProviderCondition{Type: one, Status: status, Reason: reason, Message: message})
		}
		return answer, nil
	}
	const no, yes = pb.ConditionStatus_CONDITION_STATUS_FALSE, pb.ConditionStatus_CONDITION_STATUS_TRUE
	const cloudReachable, credentialsValid = pb.ConditionType_CONDITION_TYPE_CLOUD_REACHABLE, pb.ConditionType_CONDITION_TYPE_CREDENTIALS_VALID
	if calls, stuck := h.reads.hangs(); stuck {
		return told(no, "CallsHang", fmt.Sprintf("%d calls of the cloud provider hang; reads are suspended until some return", calls), cloudReachable)
	}
	switch failing, refused, known := h.reachable.failing(); {
	case failing >= proof && refused:
		return told(no, "CredentialsRefused",
			fmt.Sprintf("the cloud refused the cloud provider's credentials for each of the last %d instances", failing), credentialsValid)
	case failing >= proof:
		return told(no, "ReadsFail", fmt.Sprintf("the cloud provider failed to read each of the last %d instances", failing), cloudReachable)
	case known && failing == 0:
		return told(yes, "ReadsSucceed", "", cloudReachable, credentialsValid)
	case known:
		return told(yes, "SomeReadsFail",
			fmt.Sprintf("%d instances cannot be read, too few to conclude that the cloud does not answer", failing), cloudReachable)
	}
	return &pb.GetStatusResponse{}, nil
}

// proof is how many instances must fail, with no successful read in between, before the cloud itself counts as failing:
// fewer may fail permanently for their own reasons.
const proof = 3

// reachable records the instances that failed since the cloud last responded. Most errors of the old interface do not say
// whether the cloud responded, but while no query succeeds, nothing may be destroyed. "Not found" is a response.
type reachable struct {
	mu sync.Mutex
	// failed holds each one's last error.
	failed map[string]pb.ErrorReason
	known  bool
	// last is when the cloud last responded.
	last time.Time
	// own are those that fail for reasons of their own: an ID that the provider cannot parse, say.
	own map[string]ownFailure
}

// ownFailure is of an instance that failed beside others that did not: so often, and last then. The first time, the cloud may have
// begun to fail in the middle of a batch.
type ownFailure struct {
	times int
	last  time.Time
}

const (
	ownAfter = 2
	// othersWithin: when nothing has been answered for so long, sweeps included, what fails fails with all the others.
	othersWithin = 15 * time.Minute
	// ownFor is how long that holds: the host's sweeps ask about all instances much more often.
	ownFor = 24 * time.Hour
)

// answered records any response of the cloud.
func (r *reachable) answered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.failed)
	r.known, r.last = true, time.Now()
}

// failing returns how many instances have failed since the last response, except for reasons of their own; whether for the credentials
// alone; and whether that says anything yet.
func (r *reachable) failing() (instances int, refused, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	refused = true
	for name, reason := range r.failed {
		if r.own[name].times >= ownAfter && time.Since(r.last) < othersWithin {
			continue
		}
		instances++
		refused = refused && (reason == pb.ErrorReason_ERROR_REASON_CLOUD_CREDENTIALS_INVALID || reason == pb.ErrorReason_ERROR_REASON_CLOUD_CREDENTIALS_EXPIRED)
	}
	return instances, refused, r.known || instances >= proof
}

// saw records the results of a batch; nodes are by the results' keys.
func (r *reachable) saw(results []*pb.InstanceResult, nodes map[string]*v1.Node) {
	failed, answered := map[string]pb.ErrorReason{}, []string(nil)
	for _, result := range results {
		name := nodes[result.GetKey()].Name
		switch reason := result.GetError().GetReason(); reason {
		case pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, pb.ErrorReason_ERROR_REASON_LOCATION_UNREACHABLE,
			pb.ErrorReason_ERROR_REASON_CLOUD_API_UNAVAILABLE, pb.ErrorReason_ERROR_REASON_RATE_LIMITED,
			pb.ErrorReason_ERROR_REASON_CLOUD_CREDENTIALS_INVALID, pb.ErrorReason_ERROR_REASON_CLOUD_CREDENTIALS_EXPIRED,
			pb.ErrorReason_ERROR_REASON_CLOUD_PERMISSION_DENIED:
			failed[name] = reason
		case pb.ErrorReason_ERROR_REASON_UNSUPPORTED_FEATURE:
			// It may be in the words of the node.
		default:
			if result.GetState() != pb.InstanceState_INSTANCE_STATE_NOT_OWNED {
				answered = append(answered, name)
			}
		}
	}
	if len(answered) > 0 {
		r.answered()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(answered) == 0 {
		if r.failed == nil {
			r.failed = map[string]pb.ErrorReason{}
		}
		maps.Copy(r.failed, failed)
		return
	}
	if r.own == nil {
		r.own = map[string]ownFailure{}
	}
	for _, name := range answered {
		delete(r.own, name)
	}
	for name := range failed {
		r.own[name] = ownFailure{r.own[name].times + 1, time.Now()}
	}
	maps.DeleteFunc(r.own, func(_ string, one ownFailure) bool { return time.Since(one.last) > ownFor })
}

// hangingCalls returns the metric of hanging calls.
func (b *bridge) hangingCalls() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "cloudprovider_bridge_hanging_calls",
		Help:        "Running calls of the bridged provider that nobody waits for any more.",
		ConstLabels: prometheus.Labels{"role": "provider"},
	}, func() float64 {
		calls, _ := b.reads.hangs()
		return float64(calls + b.balancerWorks.late() + b.routeWorks.late())
	})
}
