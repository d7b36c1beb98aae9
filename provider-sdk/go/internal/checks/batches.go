package checks

import (
	"fmt"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// each checks the size of a batch, and then its items, whose fields it names by their index.
func each[T any](field string, items []T, max uint32, check func(at string, item T) error) error {
	if err := batch(field, len(items), max); err != nil {
		return err
	}
	for i, item := range items {
		if err := check(fmt.Sprintf("%s[%d]", field, i), item); err != nil {
			return err
		}
	}
	return nil
}

func instanceQueries(queries []*pb.InstanceQuery, max uint32) error {
	seen := keys{}
	return each("queries", queries, max, func(at string, query *pb.InstanceQuery) error {
		return first(
			seen.add(at+".key", query.GetKey(), maxLong),
			node(at+".node", query.GetNode()),
		)
	})
}

func volumeQueries(queries []*pb.VolumeQuery, max uint32) error {
	seen := keys{}
	return each("queries", queries, max, func(at string, query *pb.VolumeQuery) error {
		return first(
			seen.add(at+".key", query.GetKey(), maxLong),
			text(at+".name", query.GetName(), maxLong),
			text(at+".plugin", query.GetPlugin(), maxLong),
			text(at+".volume_id", query.GetVolumeId(), maxLong),
		)
	})
}

func routesToEnsure(items []*pb.RouteToEnsure, max uint32) error {
	seen, destinations := keys{}, keys{}
	return each("items", items, max, func(at string, item *pb.RouteToEnsure) error {
		return first(
			seen.add(at+".key", item.GetKey(), maxLong),
			destinations.add(at+".destination_cidr", item.GetDestinationCidr(), maxCIDR),
			node(at+".target", item.GetTarget()),
		)
	})
}

func routesToDelete(items []*pb.RouteToDelete, max uint32) error {
	seen := keys{}
	return each("items", items, max, func(at string, item *pb.RouteToDelete) error {
		return first(
			seen.add(at+".key", item.GetKey(), maxLong),
			present(at+".route", item.GetRoute() != nil),
			text(at+".route.id", item.GetRoute().GetId(), maxLong),
			text(at+".route.destination_cidr", item.GetRoute().GetDestinationCidr(), maxCIDR),
		)
	})
}

func ensureLoadBalancer(request *pb.EnsureLoadBalancerRequest) error {
	return first(
		present("service", request.GetService() != nil),
		service("service.ref", request.GetService().GetRef()),
		present("backends", request.GetBackends() != nil),
		backendSet("backends", request.GetBackends()),
		text("desired_digest", request.GetDesiredDigest(), maxDigest),
	)
}

// backendSet checks that a set with nodes_omitted has a digest and no nodes.
func backendSet(field string, set *pb.BackendSet) error {
	switch {
	case !set.GetNodesOmitted():
		return short(field+".digest", set.GetDigest(), maxDigest)
	case len(set.GetNodes()) > 0:
		return fault.InvalidArgumentShape(field+".nodes", "are present although nodes_omitted is set")
	default:
		return text(field+".digest", set.GetDigest(), maxDigest)
	}
}

func loadBalancerUpdates(request *pb.BatchUpdateLoadBalancersRequest, max uint32) error {
	if err := first(present("backends", request.GetBackends() != nil), backendSet("backends", request.GetBackends())); err != nil {
		return err
	}
	seen := keys{}
	return each("items", request.GetItems(), max, func(at string, item *pb.LoadBalancerUpdate) error {
		return first(
			present(at+".service", item.GetService() != nil),
			service(at+".service.ref", item.GetService().GetRef()),
			seen.add(at+".service.ref.uid", item.GetService().GetRef().GetUid(), maxUID),
			text(at+".desired_digest", item.GetDesiredDigest(), maxDigest),
		)
	})
}
