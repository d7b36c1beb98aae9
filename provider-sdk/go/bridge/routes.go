package bridge

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
)

// seenWithin is when to ask again for a route that was made but is not listed yet.
const seenWithin = 5 * time.Second

// routes serves Routes.
type routes struct {
	*bridge
	routes cloudprovider.Routes
	pages  pages[*pb.Route]
	// One batch changes routes at a time: what it does depends on what it listed.
	changing chan struct{}
}

func newRoutes(b *bridge, of cloudprovider.Routes) *routes {
	return &routes{bridge: b, routes: of, pages: pages[*pb.Route]{validity: b.tokenValidity, now: time.Now}, changing: make(chan struct{}, 1)}
}

// listed is a route as the provider and as the contract has it.
type listed struct {
	theirs *cloudprovider.Route
	ours   *pb.Route
}

// list answers the routes of a cluster, by destination where that is one.
func (r *routes) list(ctx context.Context, cluster *pb.ClusterRef) (all []listed, err error) {
	found, err := one(ctx, r.bridge, "ListRoutes", func(ctx context.Context) ([]*cloudprovider.Route, error) {
		return r.routes.ListRoutes(ctx, r.clusterName(cluster))
	})
	if err != nil {
		return nil, mapped(err, "ListRoutes")
	}
	for _, theirs := range found {
		if theirs != nil {
			ours := routeOf(theirs)
			if ours.Target != nil {
				ours.Target.ProviderId = r.mirror.providerID(ours.GetTarget().GetName())
			}
			all = append(all, listed{theirs, ours})
		}
	}
	slices.SortFunc(all, func(a, b listed) int {
		return strings.Compare(a.ours.GetDestinationCidr()+a.ours.GetId(), b.ours.GetDestinationCidr()+b.ours.GetId())
	})
	return all, nil
}

func routeOf(theirs *cloudprovider.Route) *pb.Route {
	out := &pb.Route{
		Id: theirs.Name, DestinationCidr: canonical(theirs.DestinationCIDR), State: pb.RouteState_ROUTE_STATE_ACTIVE,
	}
	if out.Id == "" {
		out.Id = out.DestinationCidr
	}
	if theirs.Blackhole {
		out.State = pb.RouteState_ROUTE_STATE_BLACKHOLE
	}
	if theirs.TargetNode != "" {
		out.Target = &pb.NodeRef{Name: string(theirs.TargetNode)}
		if theirs.EnableNodeAddresses {
			out.Target.Addresses = addressesOf(theirs.TargetNodeAddresses)
		}
	}
	return out
}

// canonical answers a CIDR as a network; what is none stays as it is.
func canonical(cidr string) string {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return cidr
	}
	return netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()).Masked().String()
}

func (r *routes) ListRoutes(ctx context.Context, request *pb.ListRoutesRequest) (*pb.ListRoutesResponse, error) {
	items, next, err := r.pages.page(request.GetPageToken(), request.GetPageSize(), func() ([]*pb.Route, error) {
		all, err := r.list(ctx, request.GetCluster())
		ours := make([]*pb.Route, len(all))
		for i, one := range all {
			ours[i] = one.ours
		}
		return ours, err
	})
	if err != nil {
		return nil, err
	}
	return &pb.ListRoutesResponse{Routes: items, NextPageToken: next}, nil
}

// change waits until no other batch changes routes, and lists what there is.
func (r *routes) change(ctx context.Context, cluster *pb.ClusterRef) (all []listed, leave func(), err error) {
	waiting, done := forCaller(ctx)
	defer done()
	select {
	case r.changing <- struct{}{}:
	case <-waiting.Done():
		return nil, nil, fault.ConcurrentOperation("routes")
	}
	leave = sync.OnceFunc(func() { <-r.changing })
	if all, err = r.list(ctx, cluster); err != nil {
		leave()
		return nil, nil, err
	}
	return all, leave, nil
}

func (r *routes) BatchEnsureRoutes(ctx context.Context, request *pb.BatchEnsureRoutesRequest) (*pb.BatchEnsureRoutesResponse, error) {
	targets := make([]*pb.NodeRef, len(request.GetItems()))
	for at, item := range request.GetItems() {
		targets[at] = item.GetTarget()
	}
	r.mirror.nodes(ctx, targets...)
	before, leave, err := r.change(ctx, request.GetCluster())
	if err != nil {
		return nil, err
	}
	defer leave()
	ensure := func(ctx context.Context, item *pb.RouteToEnsure) error {
		return guarded(func() error { return r.ensure(ctx, r.clusterName(request.GetCluster()), before, item) })
	}
	errs := each(ctx, r.concurrency, request.GetItems(), ensure)
	after, err := r.list(ctx, request.GetCluster())
	answer := &pb.BatchEnsureRoutesResponse{}
	for i, item := range request.GetItems() {
		answer.Results = append(answer.Results, r.ensured(item, after, errors.Join(errs[i], err)))
	}
	return answer, nil
}

func (r *routes) ensure(ctx context.Context, cluster string, before []listed, item *pb.RouteToEnsure) error {
	destination, target := canonical(item.GetDestinationCidr()), nodeOf(item.GetTarget())
	standing := false
	for _, one := range before {
		switch {
		case one.ours.GetDestinationCidr() != destination:
		case !standing && r.leadsTo(one, target):
			standing = true
		default:
			if err := r.routes.DeleteRoute(ctx, cluster, one.theirs); err != nil {
				return err
			}
		}
	}
	if standing {
		return nil
	}
	return r.routes.CreateRoute(ctx, cluster, item.GetTarget().GetUid(), &cloudprovider.Route{
		TargetNode: types.NodeName(target.Name), DestinationCIDR: destination,
		EnableNodeAddresses: r.nodeAddresses, TargetNodeAddresses: target.Status.Addresses,
	})
}

func (r *routes) leadsTo(one listed, target *v1.Node) bool {
	if one.theirs.Blackhole || string(one.theirs.TargetNode) != target.Name {
		return false
	}
	return !one.theirs.EnableNodeAddresses || sameAddresses(one.theirs.TargetNodeAddresses, target.Status.Addresses)
}

// sameAddresses compares without regard to order.
func sameAddresses(a, b []v1.NodeAddress) bool {
	order := func(a, b v1.NodeAddress) int {
		return strings.Compare(string(a.Type)+a.Address, string(b.Type)+b.Address)
	}
	return slices.Equal(slices.SortedFunc(slices.Values(a), order), slices.SortedFunc(slices.Values(b), order))
}

func (r *routes) ensured(item *pb.RouteToEnsure, after []listed, err error) *pb.RouteResult {
	if err != nil {
		if progress := inProgress(err); progress != nil {
			return &pb.RouteResult{Key: item.GetKey(), InProgress: progress}
		}
		return &pb.RouteResult{Key: item.GetKey(), Error: fault.Item(mapped(err, item.GetTarget().GetName()))}
	}
	for _, one := range after {
		if one.ours.GetDestinationCidr() == canonical(item.GetDestinationCidr()) &&
			one.ours.GetTarget().GetName() == item.GetTarget().GetName() {
			return &pb.RouteResult{Key: item.GetKey(), Route: one.ours}
		}
	}
	return &pb.RouteResult{Key: item.GetKey(), InProgress: &pb.InProgress{
		RetryAfter: durationpb.New(seenWithin), Reason: "NOT_LISTED_YET",
	}}
}

func (r *routes) BatchDeleteRoutes(ctx context.Context, request *pb.BatchDeleteRoutesRequest) (*pb.BatchDeleteRoutesResponse, error) {
	before, leave, err := r.change(ctx, request.GetCluster())
	if err != nil {
		return nil, err
	}
	defer leave()
	remove := func(ctx context.Context, item *pb.RouteToDelete) *pb.RouteDeletion {
		err := guarded(func() error { return r.remove(ctx, r.clusterName(request.GetCluster()), before, item.GetRoute()) })
		return deletion(item, err)
	}
	return &pb.BatchDeleteRoutesResponse{Results: each(ctx, r.concurrency, request.GetItems(), remove)}, nil
}

// remove deletes a route that stands as it was listed. One that is gone is fine; one that was re-pointed stays.
func (r *routes) remove(ctx context.Context, cluster string, before []listed, asListed *pb.Route) error {
	changed := false
	for _, one := range before {
		if one.ours.GetDestinationCidr() != canonical(asListed.GetDestinationCidr()) {
			continue
		}
		if one.ours.GetId() == asListed.GetId() && one.ours.GetTarget().GetName() == asListed.GetTarget().GetName() {
			return r.routes.DeleteRoute(ctx, cluster, one.theirs)
		}
		changed = true
	}
	if changed {
		return fault.RouteChanged(asListed.GetId())
	}
	return nil
}

func deletion(item *pb.RouteToDelete, err error) *pb.RouteDeletion {
	out := &pb.RouteDeletion{Key: item.GetKey()}
	if out.InProgress = inProgress(err); out.InProgress == nil && err != nil {
		out.Error = fault.Item(mapped(err, item.GetRoute().GetId()))
	}
	return out
}
