package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
)

// seenWithin is when to retry a route that was created but is not listed yet.
const seenWithin = 5 * time.Second

// routes serves Routes.
type routes struct {
	*bridge
	pages pages[*pb.Route]
	// changing admits one batch of changes at a time, since a batch acts on the routes that it listed.
	changing chan struct{}
}

func newRoutes(b *bridge) *routes {
	return &routes{bridge: b, pages: pages[*pb.Route]{now: time.Now}, changing: make(chan struct{}, 1)}
}

// listed is a route in the provider's and in the contract's form.
type listed struct {
	theirs *cloudprovider.Route
	ours   *pb.Route
}

// list returns the routes of a cluster, keyed by destination if they have one.
func (r *routes) list(ctx context.Context, cluster *pb.ClusterRef) (all []listed, err error) {
	found, err := one(ctx, r.bridge, "ListRoutes", func(ctx context.Context) ([]*cloudprovider.Route, error) {
		return r.parts.routes.ListRoutes(ctx, r.clusterName(cluster))
	})
	if err != nil {
		return nil, r.mapped(err, "ListRoutes")
	}
	r.reachable.answered()
	for _, theirs := range found {
		if theirs != nil {
			ours := routeOf(theirs)
			if ours.Target != nil {
				ours.Target.ProviderId = r.mirrorOf(cluster).providerID(ours.GetTarget().GetName())
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

// canonical returns a CIDR as a network; other texts stay unchanged.
func canonical(cidr string) string {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return cidr
	}
	return netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()).Masked().String()
}

func (r *routes) ListRoutes(ctx context.Context, request *pb.ListRoutesRequest) (*pb.ListRoutesResponse, error) {
	items, next, err := r.pages.page(request.GetCluster(), request.GetPageToken(), request.GetPageSize(), func() ([]*pb.Route, error) {
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

// change is the starting point of a batch that changes routes.
type change struct {
	cluster *pb.ClusterRef
	// standing are the existing routes. busy are the destinations that an earlier call was still changing: their listed routes
	// may be out of date.
	standing []listed
	busy     map[string]bool
}

// begin waits until no other batch changes routes, then lists them.
func (r *routes) begin(ctx context.Context, cluster *pb.ClusterRef) (start *change, leave func(), err error) {
	waiting, done := forCaller(ctx)
	defer done()
	select {
	case r.changing <- struct{}{}:
	case <-waiting.Done():
		return nil, nil, fault.ConcurrentOperation("routes")
	}
	start, leave = &change{cluster: cluster, busy: r.routeWorks.busy()}, func() { <-r.changing }
	if start.standing, err = r.list(ctx, cluster); err != nil {
		leave()
		return nil, nil, err
	}
	return start, leave, nil
}

func (r *routes) BatchEnsureRoutes(ctx context.Context, request *pb.BatchEnsureRoutesRequest) (*pb.BatchEnsureRoutesResponse, error) {
	targets := make([]*pb.NodeRef, len(request.GetItems()))
	for at, item := range request.GetItems() {
		targets[at] = item.GetTarget()
	}
	r.mirrorOf(request.GetCluster()).nodes(ctx, r.view.wants.GetRouteTarget(), targets...)
	start, leave, err := r.begin(ctx, request.GetCluster())
	if err != nil {
		return nil, err
	}
	defer leave()
	named := func(item *pb.RouteToEnsure) (key, wish string) {
		target := nodeOf(item.GetTarget())
		return start.key(item.GetDestinationCidr()), wishOf("ensure", request, fmt.Sprintf("%q %q", target.Name, target.Status.Addresses))
	}
	errs := changeEach(ctx, r.bridge, &r.routeWorks, request.GetItems(), named,
		func(ctx context.Context, item *pb.RouteToEnsure) error { return r.ensure(ctx, start, item) },
		func(_ *pb.RouteToEnsure, err error) error { return err })
	after := start.standing
	if slices.ContainsFunc(request.GetItems(), func(item *pb.RouteToEnsure) bool { return !r.stands(start.standing, item) }) {
		again, done := withSpare(ctx)
		defer done()
		after, err = r.list(again, request.GetCluster())
	}
	answer := &pb.BatchEnsureRoutesResponse{}
	for i, item := range request.GetItems() {
		answer.Results = append(answer.Results, r.ensured(item, after, errors.Join(errs[i], err)))
	}
	return answer, nil
}

// key identifies the work on a destination.
func (c *change) key(destination string) string {
	return c.cluster.GetUid() + " " + canonical(destination)
}

// stands reports whether a route matches the request and is the only one to its destination.
func (r *routes) stands(standing []listed, item *pb.RouteToEnsure) bool {
	wrong, found := r.sorted(standing, item)
	return found && len(wrong) == 0
}

// sorted returns the wrong or superfluous routes to an item's destination, and whether a correct one exists.
func (r *routes) sorted(standing []listed, item *pb.RouteToEnsure) (wrong []listed, found bool) {
	target := nodeOf(item.GetTarget())
	for _, one := range standing {
		switch {
		case one.ours.GetDestinationCidr() != canonical(item.GetDestinationCidr()):
		case !found && r.leadsTo(one, target):
			found = true
		default:
			wrong = append(wrong, one)
		}
	}
	return wrong, found
}

func (r *routes) ensure(ctx context.Context, start *change, item *pb.RouteToEnsure) error {
	if start.busy[start.key(item.GetDestinationCidr())] {
		return queued
	}
	cluster := r.clusterName(start.cluster)
	wrong, found := r.sorted(start.standing, item)
	for _, one := range wrong {
		if err := ctx.Err(); err != nil {
			return err // Not all providers look at it.
		}
		if err := r.parts.routes.DeleteRoute(ctx, cluster, one.theirs); err != nil {
			return of(err, one.theirs)
		}
	}
	if err := ctx.Err(); found || err != nil {
		return err
	}
	target := nodeOf(item.GetTarget())
	return of(r.parts.routes.CreateRoute(ctx, cluster, item.GetTarget().GetUid(), &cloudprovider.Route{
		TargetNode: types.NodeName(target.Name), DestinationCIDR: canonical(item.GetDestinationCidr()),
		EnableNodeAddresses: r.nodeAddresses, TargetNodeAddresses: target.Status.Addresses,
	}), target)
}

func (r *routes) leadsTo(one listed, target *v1.Node) bool {
	if one.theirs.Blackhole || string(one.theirs.TargetNode) != target.Name {
		return false
	}
	return !one.theirs.EnableNodeAddresses || sameAddresses(one.theirs.TargetNodeAddresses, target.Status.Addresses)
}

// sameAddresses compares addresses regardless of their order.
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
		return &pb.RouteResult{Key: item.GetKey(), Error: fault.Item(r.mapped(err, item.GetTarget().GetName()))}
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
	start, leave, err := r.begin(ctx, request.GetCluster())
	if err != nil {
		return nil, err
	}
	defer leave()
	named := func(item *pb.RouteToDelete) (key, wish string) {
		route := item.GetRoute()
		return start.key(route.GetDestinationCidr()), wishOf("delete", request, fmt.Sprintf("%q %q", route.GetId(), route.GetTarget().GetName()))
	}
	remove := func(ctx context.Context, item *pb.RouteToDelete) error { return r.remove(ctx, start, item.GetRoute()) }
	return &pb.BatchDeleteRoutesResponse{Results: changeEach(ctx, r.bridge, &r.routeWorks, request.GetItems(), named, remove, r.deletion)}, nil
}

// remove deletes a route that is still as listed. A missing route is fine; one with another target stays.
func (r *routes) remove(ctx context.Context, start *change, asListed *pb.Route) error {
	if start.busy[start.key(asListed.GetDestinationCidr())] {
		return queued
	}
	changed := false
	for _, one := range start.standing {
		if one.ours.GetDestinationCidr() != canonical(asListed.GetDestinationCidr()) {
			continue
		}
		if one.ours.GetId() == asListed.GetId() && one.ours.GetTarget().GetName() == asListed.GetTarget().GetName() {
			return of(r.parts.routes.DeleteRoute(ctx, r.clusterName(start.cluster), one.theirs), one.theirs)
		}
		changed = true
	}
	if changed {
		return fault.RouteChanged(asListed.GetId())
	}
	return nil
}

func (r *routes) deletion(item *pb.RouteToDelete, err error) *pb.RouteDeletion {
	out := &pb.RouteDeletion{Key: item.GetKey()}
	if out.InProgress = inProgress(err); out.InProgress == nil && err != nil {
		out.Error = fault.Item(r.mapped(err, item.GetRoute().GetId()))
	}
	return out
}
