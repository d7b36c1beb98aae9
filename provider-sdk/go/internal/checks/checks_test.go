package checks

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

var limits = Limits{BatchInstances: 3, BatchLoadBalancers: 3, BatchRoutes: 3, BatchVolumes: 3, PageSize: 50}

const tooLarge = "BATCH_TOO_LARGE"

// refused answers the field that a request was refused for, "" when it was not.
func refused(t *testing.T, request any) string {
	t.Helper()
	err := Shape(request, limits)
	var found *fault.Error
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &found):
		t.Fatalf("an error of another kind: %v", err)
	case found.Reason() == pb.ErrorReason_ERROR_REASON_BATCH_TOO_LARGE && found.Metadata("max") == "3":
		return tooLarge
	case found.Reason() != pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT_SHAPE:
		t.Fatalf("the wrong reason: %v", err)
	}
	return found.Fields()[0].Path
}

func clusterRef() *pb.ClusterRef { return &pb.ClusterRef{Uid: "c"} }

func serviceRef(uid string) *pb.ServiceRef {
	return &pb.ServiceRef{Namespace: "default", Name: "web", Uid: uid}
}

func many[T any](n int, make func(at string) T) (items []T) {
	for i := range n {
		items = append(items, make(fmt.Sprint(i)))
	}
	return items
}

// [R:cluster-uid-required]
func TestEveryRequestOfACloudNeedsAClusterUID(t *testing.T) {
	for _, request := range []any{
		&pb.BatchGetInstancesRequest{}, &pb.WatchInstancesRequest{}, &pb.ListInstancesRequest{},
		&pb.AddSshKeyToAllInstancesRequest{}, &pb.GetLoadBalancerRequest{}, &pb.EnsureLoadBalancerRequest{},
		&pb.BatchUpdateLoadBalancersRequest{}, &pb.DeleteLoadBalancerRequest{}, &pb.ListLoadBalancersRequest{},
		&pb.ListRoutesRequest{}, &pb.BatchEnsureRoutesRequest{}, &pb.BatchDeleteRoutesRequest{},
		&pb.BatchGetVolumeLabelsRequest{}, &pb.ListClustersRequest{}, &pb.GetControlPlaneEndpointRequest{},
	} {
		if field := refused(t, request); field != "cluster" {
			t.Errorf("%T was refused for %q", request, field)
		}
	}
	for request, want := range map[any]string{
		&pb.ListRoutesRequest{Cluster: &pb.ClusterRef{}}:                                         "cluster.uid",
		&pb.ListRoutesRequest{Cluster: &pb.ClusterRef{Uid: strings.Repeat("u", 65)}}:             "cluster.uid",
		&pb.ListRoutesRequest{Cluster: &pb.ClusterRef{Uid: "c", Name: strings.Repeat("n", 254)}}: "cluster.name",
		&pb.ListRoutesRequest{Cluster: clusterRef(), PageSize: -1}:                               "page_size",
		&pb.ListRoutesRequest{Cluster: clusterRef(), PageToken: strings.Repeat("t", 1025)}:       "page_token",
		&pb.WatchInstancesRequest{Cluster: clusterRef(), ResumeToken: strings.Repeat("t", 1025)}: "resume_token",
		&pb.ListRoutesRequest{Cluster: clusterRef()}:                                             "",
		&pb.BatchDeleteRoutesRequest{Cluster: clusterRef()}:                                      "fencing",
		&pb.LeadRequest{Cluster: clusterRef()}:                                                   "fencing",
		&pb.LeadRequest{Fencing: &pb.Fencing{}}:                                                  "cluster",
		&pb.GetControlPlaneEndpointRequest{Cluster: clusterRef()}:                                "cluster_name",
		&pb.AddSshKeyToAllInstancesRequest{Cluster: clusterRef(), Fencing: &pb.Fencing{}}:        "user",
		&pb.GetLoadBalancerRequest{Cluster: clusterRef()}:                                        "service",
		&pb.GetLoadBalancerRequest{Cluster: clusterRef(), Service: &pb.ServiceRef{}}:             "service.uid",
		&pb.DeleteLoadBalancerRequest{Cluster: clusterRef(), Fencing: &pb.Fencing{}}:             "service",
		&pb.GetStatusRequest{}: "", &pb.GetCapabilitiesRequest{}: "",
	} {
		if field := refused(t, request); field != want {
			t.Errorf("%T %v was refused for %q, want %q", request, request, field, want)
		}
	}
}

func instance(key string) *pb.InstanceQuery {
	return &pb.InstanceQuery{Key: key, Node: &pb.NodeRef{Name: "node-" + key}}
}

func TestBatchesOfInstances(t *testing.T) {
	for _, row := range []struct {
		want    string
		queries []*pb.InstanceQuery
	}{
		{"", many(3, instance)},
		{"queries", nil},
		{tooLarge, many(4, instance)},
		{"queries[1].key", []*pb.InstanceQuery{instance("a"), instance("a")}},
		{"queries[0].key", []*pb.InstanceQuery{instance("")}},
		{"queries[0].node", []*pb.InstanceQuery{{Key: "a"}}},
		{"queries[0].node.name", []*pb.InstanceQuery{{Key: "a", Node: &pb.NodeRef{}}}},
		{"queries[0].key", []*pb.InstanceQuery{nil}},
	} {
		request := &pb.BatchGetInstancesRequest{Cluster: clusterRef(), Queries: row.queries}
		if field := refused(t, request); field != row.want {
			t.Errorf("refused for %q, want %q", field, row.want)
		}
	}
}

func volume(key string) *pb.VolumeQuery {
	return &pb.VolumeQuery{Key: key, Name: "pv", Plugin: "kubernetes.io/x", VolumeId: "v"}
}

func TestBatchesOfVolumes(t *testing.T) {
	for _, row := range []struct {
		want    string
		queries []*pb.VolumeQuery
	}{
		{"", many(3, volume)},
		{tooLarge, many(4, volume)},
		{"queries[1].key", []*pb.VolumeQuery{volume("a"), volume("a")}},
		{"queries[0].volume_id", []*pb.VolumeQuery{{Key: "a", Name: "pv", Plugin: "p"}}},
	} {
		request := &pb.BatchGetVolumeLabelsRequest{Cluster: clusterRef(), Queries: row.queries}
		if field := refused(t, request); field != row.want {
			t.Errorf("refused for %q, want %q", field, row.want)
		}
	}
}

func route(key string) *pb.RouteToEnsure {
	return &pb.RouteToEnsure{Key: key, DestinationCidr: "10.0." + key + ".0/24", Target: &pb.NodeRef{Name: "n"}}
}

func TestBatchesOfRoutes(t *testing.T) {
	for _, row := range []struct {
		want  string
		items []*pb.RouteToEnsure
	}{
		{"", many(3, route)},
		{"items", nil},
		{tooLarge, many(4, route)},
		{"items[1].key", []*pb.RouteToEnsure{route("1"), route("1")}},
		{"items[1].destination_cidr", []*pb.RouteToEnsure{route("1"), {Key: "b", DestinationCidr: "10.0.1.0/24"}}},
		{"items[0].destination_cidr", []*pb.RouteToEnsure{{Key: "a"}}},
		{"items[0].target", []*pb.RouteToEnsure{{Key: "a", DestinationCidr: "10.0.0.0/24"}}},
	} {
		request := &pb.BatchEnsureRoutesRequest{Cluster: clusterRef(), Fencing: &pb.Fencing{}, Items: row.items}
		if field := refused(t, request); field != row.want {
			t.Errorf("refused for %q, want %q", field, row.want)
		}
	}
	for want, item := range map[string]*pb.RouteToDelete{
		"items[0].route":                  {Key: "a"},
		"items[0].route.id":               {Key: "a", Route: &pb.Route{}},
		"items[0].route.destination_cidr": {Key: "a", Route: &pb.Route{Id: "r"}},
		"":                                {Key: "a", Route: &pb.Route{Id: "r", DestinationCidr: "10.0.0.0/24"}},
	} {
		request := &pb.BatchDeleteRoutesRequest{
			Cluster: clusterRef(), Fencing: &pb.Fencing{}, Items: []*pb.RouteToDelete{item},
		}
		if field := refused(t, request); field != want {
			t.Errorf("refused for %q, want %q", field, want)
		}
	}
}

func TestEnsuredBalancers(t *testing.T) {
	for want, change := range map[string]func(*pb.EnsureLoadBalancerRequest){
		"":                 func(*pb.EnsureLoadBalancerRequest) {},
		"fencing":          func(request *pb.EnsureLoadBalancerRequest) { request.Fencing = nil },
		"service":          func(request *pb.EnsureLoadBalancerRequest) { request.Service = nil },
		"service.ref":      func(request *pb.EnsureLoadBalancerRequest) { request.Service.Ref = nil },
		"service.ref.name": func(request *pb.EnsureLoadBalancerRequest) { request.Service.Ref.Name = "" },
		"backends":         func(request *pb.EnsureLoadBalancerRequest) { request.Backends = nil },
		"backends.digest":  func(request *pb.EnsureLoadBalancerRequest) { request.Backends.NodesOmitted = true },
		"backends.nodes": func(request *pb.EnsureLoadBalancerRequest) {
			request.Backends = whole("d", 1)
			request.Backends.NodesOmitted = true
		},
		"desired_digest":        func(request *pb.EnsureLoadBalancerRequest) { request.DesiredDigest = strings.Repeat("d", 129) },
		"service.ref.uid":       func(request *pb.EnsureLoadBalancerRequest) { request.Service.Ref.Uid = "" },
		"service.ref.namespace": func(request *pb.EnsureLoadBalancerRequest) { request.Service.Ref.Namespace = "" },
	} {
		request := &pb.EnsureLoadBalancerRequest{
			Cluster: clusterRef(), Fencing: &pb.Fencing{}, Service: &pb.Service{Ref: serviceRef("s")},
			Backends: &pb.BackendSet{}, DesiredDigest: "d",
		}
		change(request)
		if field := refused(t, request); field != want {
			t.Errorf("refused for %q, want %q", field, want)
		}
	}
}

func update(uid string) *pb.LoadBalancerUpdate {
	return &pb.LoadBalancerUpdate{Service: &pb.Service{Ref: serviceRef(uid)}, DesiredDigest: "d"}
}

func TestBatchesOfBalancers(t *testing.T) {
	for _, row := range []struct {
		want  string
		items []*pb.LoadBalancerUpdate
	}{
		{"", many(3, update)},
		{"items", nil},
		{tooLarge, many(4, update)},
		{"items[1].service.ref.uid", []*pb.LoadBalancerUpdate{update("a"), update("a")}},
		{"items[0].service", []*pb.LoadBalancerUpdate{{}}},
		{"items[0].desired_digest", []*pb.LoadBalancerUpdate{{Service: &pb.Service{Ref: serviceRef("s")}}}},
		{"items[0].backend_set", []*pb.LoadBalancerUpdate{
			{Service: &pb.Service{Ref: serviceRef("s")}, DesiredDigest: "d", BackendSet: 1},
		}},
	} {
		request := &pb.BatchUpdateLoadBalancersRequest{
			Cluster: clusterRef(), Fencing: &pb.Fencing{}, BackendSets: []*pb.BackendSet{{}}, Items: row.items,
		}
		if field := refused(t, request); field != row.want {
			t.Errorf("refused for %q, want %q", field, row.want)
		}
	}
}

func TestPageSizesFitTheLimit(t *testing.T) {
	for asked, want := range map[int32]int32{0: 50, 1: 1, 50: 50, 51: 50, math.MaxInt32: 50} {
		request := &pb.ListRoutesRequest{Cluster: clusterRef(), PageSize: asked}
		if Fit(request, limits); request.GetPageSize() != want {
			t.Errorf("%d became %d, want %d", asked, request.GetPageSize(), want)
		}
	}
	if got := pageSize(0, math.MaxUint32); got != math.MaxInt32 {
		t.Errorf("the largest limit became %d", got)
	}
}

// [R:fencing]
func TestFencingComparesWithinAScopeOnly(t *testing.T) {
	fences := &Fences{}
	for i, row := range []struct {
		scope string
		epoch uint64
		stale bool
	}{
		{"lease-a", 5, false}, {"lease-a", 5, false}, {"lease-a", 4, true}, {"lease-b", 1, false},
		{"lease-a", 0, false}, {"", 0, false}, {"lease-a", 6, false}, {"lease-a", 5, true},
	} {
		err := fences.Check(&pb.Fencing{Scope: row.scope, Epoch: row.epoch})
		stale := fault.ReasonOf(err) == pb.ErrorReason_ERROR_REASON_STALE_LEADER
		if stale != row.stale {
			t.Errorf("row %d: %v", i, err)
		}
	}
}

// [R:stale-revision]
func TestRevisionsGrowByService(t *testing.T) {
	revisions := &Revisions{}
	for i, row := range []struct {
		cluster, service string
		revision         uint64
		stale            bool
	}{
		{"c", "s", 10, false}, {"c", "s", 10, false}, {"c", "s", 9, true}, {"c", "s", 0, false},
		{"c", "t", 1, false}, {"d", "s", 1, false}, {"c", "s", 11, false}, {"c", "s", 10, true},
	} {
		err := revisions.Accept(row.cluster, row.service, row.revision)
		if stale := fault.ReasonOf(err) == pb.ErrorReason_ERROR_REASON_STALE_REVISION; stale != row.stale {
			t.Errorf("row %d: %v", i, err)
		}
	}
}

func TestMemoryOfRevisionsIsBoundedAndTheNewestStay(t *testing.T) {
	revisions := &Revisions{}
	for service := range remembered + 1 {
		if err := revisions.Accept("c", fmt.Sprint(service), 9); err != nil {
			t.Fatal(err)
		}
	}
	if len(revisions.highest) > remembered {
		t.Errorf("%d services are remembered", len(revisions.highest))
	}
	if revisions.Accept("c", "0", 1) != nil || revisions.Accept("c", fmt.Sprint(remembered), 1) == nil {
		t.Error("the wrong ones were forgotten")
	}
}
