package main_test

import (
	"slices"
	"testing"

	"cloudprovider.ccm/bridged-aws/emulator"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

func TestRoutesAreProgrammedListedAndDeleted(t *testing.T) {
	w := newWorld(t)
	first, firstNode := w.initialized(emulator.Zones[0])
	second, secondNode := w.initialized(emulator.Zones[1])

	w.ensureRoute("10.244.0.0/24", firstNode)
	w.ensureRoute("10.244.1.0/24", secondNode)

	w.expectRoutes(emulator.Route{Destination: "10.244.0.0/24", Instance: first.ID, State: "active"},
		emulator.Route{Destination: "10.244.1.0/24", Instance: second.ID, State: "active"})
	listed := w.listRoutes()
	if len(listed) != 2 || listed[0].GetTarget().GetName() != first.Node || listed[1].GetTarget().GetName() != second.Node {
		t.Fatalf("listed: %v", listed)
	}

	w.deleteRoute(listed[0])

	w.expectRoutes(emulator.Route{Destination: "10.244.1.0/24", Instance: second.ID, State: "active"})
}

func TestTheRouteOfATerminatedMachineIsABlackholeAndIsReplaced(t *testing.T) {
	w := newWorld(t)
	machine, node := w.initialized(emulator.Zones[0])
	w.ensureRoute("10.244.0.0/24", node)

	must(0, w.cloud.Terminate(w.ctx, machine.ID))(t)

	listed := w.listRoutes()
	if len(listed) != 1 || listed[0].GetState() != pb.RouteState_ROUTE_STATE_BLACKHOLE || listed[0].GetTarget() != nil {
		t.Errorf("listed: %v", listed)
	}
	successor, node := w.initialized(emulator.Zones[0])
	w.ensureRoute("10.244.0.0/24", node)
	w.expectRoutes(emulator.Route{Destination: "10.244.0.0/24", Instance: successor.ID, State: "active"})
}

// ensureRoute retries errors of the cloud, as the host does: the AWS SDK repeats a call whose connection broke, and then a
// DeleteRoute that succeeded the first time fails.
func (w *world) ensureRoute(cidr string, target *pb.NodeRef) {
	w.Helper()
	var result *pb.RouteResult
	for range 5 {
		result = must(pb.NewRoutesClient(w.conn).BatchEnsureRoutes(w.ctx, &pb.BatchEnsureRoutesRequest{
			Cluster: cluster(), Fencing: &pb.Fencing{},
			Items: []*pb.RouteToEnsure{{Key: cidr, DestinationCidr: cidr, Target: target}},
		}))(w.T).GetResults()[0]
		if result.GetError().GetReason() != pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR {
			break
		}
	}
	if result.GetRoute().GetTarget().GetName() != target.GetName() {
		w.Errorf("%s to %s: %v", cidr, target.GetName(), result)
	}
}

func (w *world) listRoutes() []*pb.Route {
	w.Helper()
	return must(pb.NewRoutesClient(w.conn).ListRoutes(w.ctx, &pb.ListRoutesRequest{Cluster: cluster(), PageSize: 100}))(w.T).GetRoutes()
}

func (w *world) deleteRoute(route *pb.Route) {
	w.Helper()
	result := must(pb.NewRoutesClient(w.conn).BatchDeleteRoutes(w.ctx, &pb.BatchDeleteRoutesRequest{
		Cluster: cluster(), Fencing: &pb.Fencing{}, Items: []*pb.RouteToDelete{{Key: route.GetId(), Route: route}},
	}))(w.T).GetResults()[0]
	if result.GetError() != nil || result.GetInProgress() != nil {
		w.Errorf("%v is not deleted: %v", route, result)
	}
}

// expectRoutes compares the whole route table, except the routes to gateways.
func (w *world) expectRoutes(want ...emulator.Route) {
	w.Helper()
	if got := must(w.cloud.Routes(w.ctx, w.network))(w.T); !slices.Equal(got, want) {
		w.Errorf("the route table has %v, want %v", got, want)
	}
}
