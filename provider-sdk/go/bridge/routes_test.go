package bridge_test

import (
	"testing"

	"cloudprovider.ccm/sdk/bridge"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/fake"
)

// routed is a cloud with the cluster's routes, by name.
func routed(routes ...cloudprovider.Route) *cloud {
	cloud := newer()
	cloud.RouteMap = map[string]*fake.Route{}
	for _, route := range routes {
		cloud.RouteMap[route.Name] = &fake.Route{ClusterName: "name-1", Route: route}
	}
	return cloud
}

func to(node, cidr string) cloudprovider.Route {
	return cloudprovider.Route{Name: "name-1-" + node + "-" + cidr, TargetNode: types.NodeName(node), DestinationCIDR: cidr}
}

func item(key, node, cidr string) *pb.RouteToEnsure {
	return &pb.RouteToEnsure{Key: key, DestinationCidr: cidr, Target: &pb.NodeRef{Name: node, Uid: "uid-" + node}}
}

func ensureRoutes(t *testing.T, client pb.RoutesClient, items ...*pb.RouteToEnsure) map[string]*pb.RouteResult {
	t.Helper()
	answer, err := client.BatchEnsureRoutes(soon(t), &pb.BatchEnsureRoutesRequest{Cluster: clusterRef(), Fencing: &pb.Fencing{}, Items: items})
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]*pb.RouteResult{}
	for _, result := range answer.GetResults() {
		results[result.GetKey()] = result
	}
	return results
}

func targets(t *testing.T, client pb.RoutesClient) map[string]string {
	t.Helper()
	found, request := map[string]string{}, &pb.ListRoutesRequest{Cluster: clusterRef(), PageSize: 2}
	for {
		page, err := client.ListRoutes(soon(t), request)
		if err != nil || len(page.GetRoutes()) > 2 {
			t.Fatal(page, err)
		}
		for _, route := range page.GetRoutes() {
			found[route.GetDestinationCidr()] += route.GetTarget().GetName() + " " + route.GetState().String()[len("ROUTE_STATE_"):]
		}
		if request.PageToken = page.GetNextPageToken(); request.PageToken == "" {
			return found
		}
	}
}

func TestRoutesBecomeAsWanted(t *testing.T) {
	hole := to("gone", "10.0.4.0/24")
	hole.Blackhole = true
	client := pb.NewRoutesClient(serve(t, routed(to("a", "10.0.1.0/24"), to("b", "10.0.2.0/24"), hole, to("", "10.0.5.0/24"))))
	got := ensureRoutes(t, client, item("stands", "a", "10.0.1.0/24"), item("wrong", "a", "10.0.2.0/24"),
		item("new", "c", "10.0.3.0/24"), item("hole", "d", "10.0.4.0/24"))
	for key, node := range map[string]string{"stands": "a", "wrong": "a", "new": "c", "hole": "d"} {
		if result := got[key]; result.GetRoute().GetTarget().GetName() != node || result.GetRoute().GetId() == "" || result.GetError() != nil {
			t.Errorf("%s: %v", key, result)
		}
	}
	want := map[string]string{
		"10.0.1.0/24": "a ACTIVE", "10.0.2.0/24": "a ACTIVE", "10.0.3.0/24": "c ACTIVE", "10.0.4.0/24": "d ACTIVE", "10.0.5.0/24": " ACTIVE",
	}
	found := targets(t, client)
	for cidr, target := range want {
		if found[cidr] != target {
			t.Errorf("%s leads to %q, want %q", cidr, found[cidr], target)
		}
	}
	if len(found) != len(want) {
		t.Errorf("found %v", found)
	}
}

// [R:route-changed] [R:route-canonical]
func TestOnlyWhatStandsAsListedIsRemoved(t *testing.T) {
	client := pb.NewRoutesClient(serve(t, routed(to("a", "10.0.1.0/24"), to("b", "10.0.2.0/24"), to("c", "10.0.3.7/24"))))
	remove := func(key string, route cloudprovider.Route, cidr string) *pb.RouteToDelete {
		return &pb.RouteToDelete{Key: key, Route: &pb.Route{
			Id: route.Name, DestinationCidr: cidr, Target: &pb.NodeRef{Name: string(route.TargetNode)},
		}}
	}
	answer, err := client.BatchDeleteRoutes(soon(t), &pb.BatchDeleteRoutesRequest{
		Cluster: clusterRef(), Fencing: &pb.Fencing{}, Items: []*pb.RouteToDelete{
			remove("stands", to("a", "10.0.1.0/24"), "10.0.1.0/24"),
			remove("re-pointed", to("a", "10.0.2.0/24"), "10.0.2.0/24"),
			remove("canonical", to("c", "10.0.3.7/24"), "10.0.3.0/24"),
			remove("gone", to("a", "10.0.9.0/24"), "10.0.9.0/24"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range answer.GetResults() {
		want := pb.ErrorReason_ERROR_REASON_UNSPECIFIED
		if result.GetKey() == "re-pointed" {
			want = pb.ErrorReason_ERROR_REASON_ROUTE_CHANGED
		}
		if result.GetError().GetReason() != want {
			t.Errorf("got %v", result)
		}
	}
	if found := targets(t, client); len(found) != 1 || found["10.0.2.0/24"] != "b ACTIVE" {
		t.Errorf("found %v", found)
	}
}

func TestRoutesThatHoldAddressesFollowThem(t *testing.T) {
	before := to("a", "10.0.1.0/24")
	before.EnableNodeAddresses = true
	before.TargetNodeAddresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.5.0.1"}}
	cloud := routed(before)
	conn := serve(t, cloud, bridge.WithRouteNodeAddresses())
	capabilities, err := pb.NewCloudProviderClient(conn).GetCapabilities(soon(t), &pb.GetCapabilitiesRequest{})
	if err != nil || capabilities.GetCapabilities()[0] != pb.Capability_CAPABILITY_ROUTE_NODE_ADDRESSES {
		t.Error(capabilities, err)
	}
	moved := item("a", "a", "10.0.1.0/24")
	moved.Target.Addresses = []*pb.NodeAddress{{Type: pb.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP, Address: "10.5.0.2"}}
	for range 2 {
		got := ensureRoutes(t, pb.NewRoutesClient(conn), moved)
		if addresses := got["a"].GetRoute().GetTarget().GetAddresses(); len(addresses) != 1 || addresses[0].GetAddress() != "10.5.0.2" {
			t.Errorf("got %v", got)
		}
	}
	cloud.Lock.Lock()
	defer cloud.Lock.Unlock()
	created := 0
	for _, call := range cloud.Calls {
		if call == "create-route" {
			created++
		}
	}
	if created != 1 {
		t.Errorf("made %d times", created)
	}
}

func TestAListThatFailsIsNoEmptyList(t *testing.T) {
	cloud := routed(to("a", "10.0.1.0/24"))
	cloud.Err = cloudprovider.NotImplemented
	client := pb.NewRoutesClient(serve(t, cloud))
	_, err := client.ListRoutes(soon(t), &pb.ListRoutesRequest{Cluster: clusterRef()})
	expect(t, err, codes.Unimplemented, pb.ErrorReason_ERROR_REASON_METHOD_NOT_SUPPORTED)
	_, err = client.BatchEnsureRoutes(soon(t), &pb.BatchEnsureRoutesRequest{
		Cluster: clusterRef(), Fencing: &pb.Fencing{}, Items: []*pb.RouteToEnsure{item("a", "a", "10.0.1.0/24")},
	})
	expect(t, err, codes.Unimplemented, pb.ErrorReason_ERROR_REASON_METHOD_NOT_SUPPORTED)
}

// A provider knows its routes' targets only by name; the host gets back the provider ID that it sent.
func TestTargetsAreEchoedWithTheirProviderIDs(t *testing.T) {
	cloud := newer()
	cloud.RouteMap = map[string]*fake.Route{}
	client := pb.NewRoutesClient(serve(t, cloud))
	answer, err := client.BatchEnsureRoutes(soon(t), &pb.BatchEnsureRoutesRequest{
		Cluster: clusterRef(), Fencing: &pb.Fencing{}, Items: []*pb.RouteToEnsure{{
			Key: "k", DestinationCidr: "10.0.0.0/24", Target: &pb.NodeRef{Name: "a", ProviderId: "fake://a"},
		}},
	})
	if err != nil || answer.GetResults()[0].GetRoute().GetTarget().GetProviderId() != "fake://a" {
		t.Error(answer, err)
	}
}
