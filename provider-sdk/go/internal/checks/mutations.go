package checks

import (
	"net/netip"
	"slices"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/proto"
)

// Subject is a natural key: only one mutation at a time may work on it.
type Subject struct {
	kind, cluster string
	// Name is the uid of a Service, or the destination of a route.
	Name string
}

// May decides whether a mutation may work on a key at this revision of its wanted state.
type May func(subject Subject, revision uint64) error

// Admit asks may about every key of a mutation. A single mutation fails with the refusal. From a batch, refused items are removed:
// left is the rest, nil if there is none, and refused the response with their results.
func Admit(request any, may May) (left any, refused proto.Message, err error) {
	items := 1
	switch request := request.(type) {
	case *pb.EnsureLoadBalancerRequest:
		err = may(balancer(request.GetCluster(), request.GetService().GetRef().GetUid()), request.GetRevision())
	case *pb.DeleteLoadBalancerRequest:
		err = may(balancer(request.GetCluster(), request.GetService().GetUid()), request.GetRevision())
	case *pb.BatchUpdateLoadBalancersRequest:
		answer := &pb.BatchUpdateLoadBalancersResponse{}
		request.Items, answer.Results = refuse(request.Items, updateKey, failedUpdate, func(item *pb.LoadBalancerUpdate) error {
			return may(balancer(request.GetCluster(), updateKey(item)), item.GetRevision())
		})
		items, refused = len(request.Items), answer
	case *pb.BatchEnsureRoutesRequest:
		answer := &pb.BatchEnsureRoutesResponse{}
		request.Items, answer.Results = refuse(request.Items, (*pb.RouteToEnsure).GetKey, failedRoute, func(item *pb.RouteToEnsure) error {
			return may(routeTo(request.GetCluster(), item.GetDestinationCidr()), 0)
		})
		items, refused = len(request.Items), answer
	case *pb.BatchDeleteRoutesRequest:
		answer := &pb.BatchDeleteRoutesResponse{}
		request.Items, answer.Results = refuse(request.Items, (*pb.RouteToDelete).GetKey, failedDeletion, func(item *pb.RouteToDelete) error {
			return may(routeTo(request.GetCluster(), item.GetRoute().GetDestinationCidr()), 0)
		})
		items, refused = len(request.Items), answer
	}
	if items == 0 {
		return nil, refused, err
	}
	return request, refused, err
}

// refuse removes the refused items from a batch and returns their results.
func refuse[I, R any](items []I, key func(I) string, failed func(string, error) R, may func(I) error) (kept []I, results []R) {
	for _, item := range items {
		if err := may(item); err != nil {
			results = append(results, failed(key(item), err))
		} else {
			kept = append(kept, item)
		}
	}
	return kept, results
}

func balancer(cluster *pb.ClusterRef, uid string) Subject {
	return Subject{"service", cluster.GetUid(), uid}
}

// routeTo compares CIDRs as networks, never as text; the provider refuses a text that is not a CIDR.
func routeTo(cluster *pb.ClusterRef, destination string) Subject {
	if prefix, err := netip.ParsePrefix(destination); err == nil {
		destination = prefix.Masked().String()
	}
	return Subject{"route", cluster.GetUid(), destination}
}

// Settle repairs the response of a batch: it drops unrequested keys, and marks missing or duplicate ones as unknown. It
// returns the wrong keys, and tells what the provider says of items that failed, with the names of their objects: the host knows both,
// but the team that can fix the provider reads this side's log.
func Settle(request, answer any, tell func(object string, failed *pb.ItemError)) (wrong []string) {
	switch request := request.(type) {
	case *pb.BatchGetInstancesRequest:
		if answer, is := answer.(*pb.BatchGetInstancesResponse); is && answer != nil {
			answer.Results, wrong = settle(request.GetQueries(), (*pb.InstanceQuery).GetKey, instanceName, answer.Results, (*pb.InstanceResult).GetKey, failedInstance, tell)
		}
	case *pb.BatchGetVolumeLabelsRequest:
		if answer, is := answer.(*pb.BatchGetVolumeLabelsResponse); is && answer != nil {
			answer.Results, wrong = settle(request.GetQueries(), (*pb.VolumeQuery).GetKey, (*pb.VolumeQuery).GetName, answer.Results, (*pb.VolumeResult).GetKey, failedVolume, tell)
		}
	case *pb.BatchUpdateLoadBalancersRequest:
		if answer, is := answer.(*pb.BatchUpdateLoadBalancersResponse); is && answer != nil {
			answer.Results, wrong = settle(request.GetItems(), updateKey, updateName, answer.Results, (*pb.LoadBalancerUpdateResult).GetServiceUid, failedUpdate, tell)
		}
	case *pb.BatchEnsureRoutesRequest:
		if answer, is := answer.(*pb.BatchEnsureRoutesResponse); is && answer != nil {
			answer.Results, wrong = settle(request.GetItems(), (*pb.RouteToEnsure).GetKey, (*pb.RouteToEnsure).GetDestinationCidr, answer.Results, (*pb.RouteResult).GetKey, failedRoute, tell)
		}
	case *pb.BatchDeleteRoutesRequest:
		if answer, is := answer.(*pb.BatchDeleteRoutesResponse); is && answer != nil {
			answer.Results, wrong = settle(request.GetItems(), (*pb.RouteToDelete).GetKey, deletionName, answer.Results, (*pb.RouteDeletion).GetKey, failedDeletion, tell)
		}
	}
	return wrong
}

func settle[Q any, R interface{ GetError() *pb.ItemError }](queries []Q, asked, named func(Q) string, results []R, given func(R) string,
	failed func(string, error) R, tell func(string, *pb.ItemError),
) ([]R, []string) {
	count := make(map[string]int, len(results))
	for _, result := range results {
		count[given(result)]++
	}
	var lacking []string
	wanted := make(map[string]string, len(queries))
	for _, query := range queries {
		key := asked(query)
		if count[key] == 1 {
			wanted[key] = named(query)
		} else {
			lacking = append(lacking, key)
		}
	}
	wrong := slices.Clone(lacking)
	results = slices.DeleteFunc(results, func(result R) bool {
		key := given(result)
		object, is := wanted[key]
		switch {
		case is && result.GetError() != nil:
			tell(object, result.GetError())
		case !is && !slices.Contains(wrong, key):
			wrong = append(wrong, key)
		}
		return !is
	})
	for _, key := range lacking {
		results = append(results, failed(key, fault.New(pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, "the provider did not return exactly one result for this item")))
	}
	return results, wrong
}

func updateKey(item *pb.LoadBalancerUpdate) string { return item.GetService().GetRef().GetUid() }

func instanceName(query *pb.InstanceQuery) string { return query.GetNode().GetName() }

func deletionName(item *pb.RouteToDelete) string { return item.GetRoute().GetDestinationCidr() }

func updateName(item *pb.LoadBalancerUpdate) string {
	return item.GetService().GetRef().GetNamespace() + "/" + item.GetService().GetRef().GetName()
}

func failedInstance(key string, err error) *pb.InstanceResult {
	return &pb.InstanceResult{Key: key, Error: fault.Item(err)}
}

func failedVolume(key string, err error) *pb.VolumeResult {
	return &pb.VolumeResult{Key: key, Error: fault.Item(err)}
}

func failedUpdate(uid string, err error) *pb.LoadBalancerUpdateResult {
	return &pb.LoadBalancerUpdateResult{ServiceUid: uid, Outcome: pb.UpdateOutcome_UPDATE_OUTCOME_NOT_UPDATED, Error: fault.Item(err)}
}

func failedRoute(key string, err error) *pb.RouteResult {
	return &pb.RouteResult{Key: key, Error: fault.Item(err)}
}

func failedDeletion(key string, err error) *pb.RouteDeletion {
	return &pb.RouteDeletion{Key: key, Error: fault.Item(err)}
}
