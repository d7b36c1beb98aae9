package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/bridge"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
)

const (
	unspecified = pb.InstanceState_INSTANCE_STATE_UNSPECIFIED
	running     = pb.InstanceState_INSTANCE_STATE_RUNNING
	stopped     = pb.InstanceState_INSTANCE_STATE_STOPPED
	absent      = pb.InstanceState_INSTANCE_STATE_ABSENT
	notOwned    = pb.InstanceState_INSTANCE_STATE_NOT_OWNED
	there       = pb.InstanceState_INSTANCE_STATE_EXISTS
)

func batch(nodes ...*pb.NodeRef) *pb.BatchGetInstancesRequest {
	request := &pb.BatchGetInstancesRequest{Cluster: clusterRef()}
	for _, node := range nodes {
		request.Queries = append(request.Queries, &pb.InstanceQuery{Key: node.GetName(), Node: node})
	}
	return request
}

func ask(t *testing.T, cloud cloudprovider.Interface, node *pb.NodeRef) *pb.InstanceResult {
	t.Helper()
	answer, err := pb.NewInstancesClient(serve(t, cloud)).BatchGetInstances(soon(t), batch(node))
	if err != nil || len(answer.GetResults()) != 1 {
		t.Fatal(answer, err)
	}
	return answer.GetResults()[0]
}

func TestWhatTheNewerInterfaceSays(t *testing.T) {
	exists := func(exists bool, err error) func(context.Context, *v1.Node) (bool, error) {
		return func(context.Context, *v1.Node) (bool, error) { return exists, err }
	}
	described := func(found *cloudprovider.InstanceMetadata, err error) func(context.Context, *v1.Node) (*cloudprovider.InstanceMetadata, error) {
		return func(context.Context, *v1.Node) (*cloudprovider.InstanceMetadata, error) { return found, err }
	}
	for name, row := range map[string]struct {
		change        func(*cloud)
		id            string
		state         pb.InstanceState
		authoritative bool
		reason        pb.ErrorReason
	}{
		"there":                 {func(*cloud) {}, "fake://a", running, true, 0},
		"there, new":            {func(*cloud) {}, "", running, true, 0},
		"stopped":               {func(c *cloud) { c.shutdown = exists(true, nil) }, "fake://a", stopped, true, 0},
		"gone":                  {func(c *cloud) { c.exists = exists(false, nil) }, "fake://a", absent, true, 0},
		"gone by name":          {func(c *cloud) { c.metadata = described(nil, cloudprovider.InstanceNotFound) }, "", absent, false, 0},
		"new, stopped":          {func(c *cloud) { c.shutdown = exists(true, nil) }, "", stopped, true, 0},
		"another's":             {func(c *cloud) { c.exists = exists(false, nil) }, "other://a", notOwned, false, 0},
		"not found as an error": {func(c *cloud) { c.exists = exists(false, cloudprovider.InstanceNotFound) }, "fake://a", unspecified, false, pb.ErrorReason_ERROR_REASON_INSTANCE_NOT_FOUND},
		"failed":                {func(c *cloud) { c.exists = exists(false, errors.New("500")) }, "fake://a", unspecified, false, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
		"panic":                 {func(c *cloud) { c.exists = func(context.Context, *v1.Node) (bool, error) { panic("x") } }, "fake://a", unspecified, false, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
		"shutdown failed":       {func(c *cloud) { c.shutdown = exists(false, errors.New("500")) }, "fake://a", unspecified, false, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
		"nil metadata":          {func(c *cloud) { c.metadata = described(nil, nil) }, "fake://a", running, true, pb.ErrorReason_ERROR_REASON_METADATA_NOT_READY},
		"metadata failed":       {func(c *cloud) { c.metadata = described(nil, context.DeadlineExceeded) }, "fake://a", running, true, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
		"metadata panics": {func(c *cloud) {
			c.metadata = func(context.Context, *v1.Node) (*cloudprovider.InstanceMetadata, error) { panic("x") }
		}, "fake://a", running, true, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
		"half built":          {func(c *cloud) { c.metadata = described(&cloudprovider.InstanceMetadata{}, nil) }, "", there, true, pb.ErrorReason_ERROR_REASON_METADATA_NOT_READY},
		"half built, known":   {func(c *cloud) { c.metadata = described(&cloudprovider.InstanceMetadata{}, nil) }, "fake://a", running, true, 0},
		"a foreign ID is new": {func(c *cloud) { c.metadata = described(&cloudprovider.InstanceMetadata{ProviderID: "i-1"}, nil) }, "", there, true, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := newer()
			row.change(cloud)
			got := ask(t, cloud, &pb.NodeRef{Name: "a", ProviderId: row.id})
			if got.GetState() != row.state || got.GetAuthoritative() != row.authoritative || got.GetError().GetReason() != row.reason {
				t.Errorf("got %v", got)
			}
			described := row.reason == 0 && (row.state == running || row.state == stopped)
			if (got.GetInstance() != nil) != described || (described && got.GetInstance().GetProviderId() != "fake://a") {
				t.Errorf("the instance is %v", got.GetInstance())
			}
		})
	}
}

func TestNodesAndDescriptionsAreTranslated(t *testing.T) {
	cloud := newer()
	cloud.metadata = func(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
		node.Annotations["written"] = "by the provider" // Read-only for providers, yet some write.
		if node.UID != "uid" || node.Labels["zone"] != "z" || node.Status.NodeInfo.SystemUUID != "su" ||
			node.Annotations["alpha.kubernetes.io/provided-node-ip"] != "10.0.0.1,fd00::1" || node.Spec.PodCIDR != "10.1.0.0/24" ||
			node.Status.Addresses[0] != (v1.NodeAddress{Type: v1.NodeInternalIP, Address: "10.0.0.1"}) {
			return nil, fmt.Errorf("the node is %+v", node)
		}
		address := v1.NodeAddress{Type: v1.NodeExternalIP, Address: "192.0.2.7"}
		return &cloudprovider.InstanceMetadata{
			ProviderID: "fake://a", InstanceType: "large", Zone: "z-1", Region: "r-1", AdditionalLabels: map[string]string{"rack": "7"},
			NodeAddresses: []v1.NodeAddress{address, {Type: "Invented", Address: "x"}, address, {Type: v1.NodeHostName, Address: "a"}},
		}, nil
	}
	got := ask(t, cloud, &pb.NodeRef{
		Name: "a", Uid: "uid", Labels: map[string]string{"zone": "z"}, SystemUuid: "su", ProvidedNodeIps: []string{"10.0.0.1", "fd00::1"},
		PodCidrs:  []string{"10.1.0.0/24"},
		Addresses: []*pb.NodeAddress{{Type: pb.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP, Address: "10.0.0.1"}},
	}).GetInstance()
	if got.GetInstanceType() != "large" || got.GetZone() != "z-1" || got.GetRegion() != "r-1" || got.GetLabels()["rack"] != "7" ||
		len(got.GetAddresses()) != 2 || got.GetAddresses()[0].GetAddress() != "192.0.2.7" ||
		got.GetAddresses()[1].GetType() != pb.NodeAddressType_NODE_ADDRESS_TYPE_HOSTNAME {
		t.Errorf("got %v", got)
	}
}

func TestWhatTheOlderInterfacesSay(t *testing.T) {
	for name, row := range map[string]struct {
		change        func(*cloud)
		id            string
		state         pb.InstanceState
		authoritative bool
		reason        pb.ErrorReason
	}{
		"there":           {func(c *cloud) { c.ExistsByProviderID = true }, "fake://a", running, true, 0},
		"there, new":      {func(c *cloud) { c.ExistsByProviderID = true; c.ExtID = map[types.NodeName]string{"a": "a"} }, "", running, true, 0},
		"stopped":         {func(c *cloud) { c.ExistsByProviderID, c.NodeShutdown = true, true }, "fake://a", stopped, true, 0},
		"cannot shutdown": {func(c *cloud) { c.ExistsByProviderID, c.ErrShutdownByProviderID = true, cloudprovider.NotImplemented }, "fake://a", running, true, 0},
		"gone":            {func(*cloud) {}, "fake://a", absent, true, 0},
		"unknown by name": {func(c *cloud) { c.ExtIDErr = map[types.NodeName]error{"a": cloudprovider.InstanceNotFound} }, "", absent, false, 0},
		"no ID":           {func(*cloud) {}, "", absent, false, 0},
		"IDs are missing": {func(c *cloud) { c.ExtIDErr = map[types.NodeName]error{"a": cloudprovider.NotImplemented} }, "", unspecified, false, pb.ErrorReason_ERROR_REASON_METHOD_NOT_SUPPORTED},
		"failed":          {func(c *cloud) { c.ErrByProviderID = errors.New("500") }, "fake://a", unspecified, false, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
		"not described":   {func(c *cloud) { c.ExistsByProviderID, c.Err = true, errors.New("500") }, "fake://a", running, true, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := older()
			cloud.Zone = cloudprovider.Zone{FailureDomain: "z-1", Region: "r-1"}
			row.change(cloud)
			got := ask(t, cloud, &pb.NodeRef{Name: "a", ProviderId: row.id})
			if got.GetState() != row.state || got.GetAuthoritative() != row.authoritative || got.GetError().GetReason() != row.reason {
				t.Errorf("got %v", got)
			}
			if row.reason == 0 && row.state == running && (got.GetInstance().GetProviderId() != "fake://a" || got.GetInstance().GetZone() != "z-1") {
				t.Errorf("the instance is %v", got.GetInstance())
			}
		})
	}
}

// Upstream asks for the type and the zone of a new node only, so that neither can keep the addresses of others from being told.
func TestAddressesAreToldThoughTheZoneFails(t *testing.T) {
	labels := map[string]string{v1.LabelInstanceTypeStable: "large", v1.LabelTopologyZone: "z-1"}
	for name, row := range map[string]struct {
		labels map[string]string
		told   bool
	}{"known": {labels, true}, "new": {nil, false}} {
		cloud := older()
		cloud.ExistsByProviderID = true
		cloud.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}}
		got := ask(t, zoneless{cloud}, &pb.NodeRef{Name: "a", ProviderId: "fake://a", Labels: row.labels})
		if told := len(got.GetInstance().GetAddresses()) == 1; told != row.told || (got.GetError() == nil) != row.told {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// zoneless cannot tell zones.
type zoneless struct{ *cloud }

func (z zoneless) Zones() (cloudprovider.Zones, bool) { return z, true }

func (zoneless) GetZoneByProviderID(context.Context, string) (cloudprovider.Zone, error) {
	return cloudprovider.Zone{}, errors.New("503")
}

func (zoneless) GetZoneByNodeName(context.Context, types.NodeName) (cloudprovider.Zone, error) {
	return cloudprovider.Zone{}, errors.New("503")
}

func (zoneless) GetZone(context.Context) (cloudprovider.Zone, error) {
	return cloudprovider.Zone{}, errors.New("503")
}

// A batch makes some calls concurrently but not all, and a slow instance does not delay the others.
func TestABatchIsAskedSomeAtATime(t *testing.T) {
	var now, most atomic.Int32
	cloud := newer()
	cloud.exists = func(ctx context.Context, node *v1.Node) (bool, error) {
		for busy := now.Add(1); busy > most.Load(); {
			most.Store(busy)
		}
		defer now.Add(-1)
		if node.Name == "node-3" {
			<-make(chan bool) // Hangs for ever, whatever its context says.
		}
		time.Sleep(time.Millisecond)
		return true, nil
	}
	client := pb.NewInstancesClient(serve(t, cloud))
	var nodes []*pb.NodeRef
	for i := range 50 {
		nodes = append(nodes, &pb.NodeRef{Name: fmt.Sprint("node-", i), ProviderId: fmt.Sprint("fake://", i)})
	}
	answer := inTime(t, func(ctx context.Context) (*pb.BatchGetInstancesResponse, error) {
		return client.BatchGetInstances(ctx, batch(nodes...))
	})
	for i, result := range answer.GetResults() {
		hung := i == 3
		if result.GetKey() != nodes[i].GetName() || (result.GetState() == running) == hung ||
			(result.GetError().GetReason() == pb.ErrorReason_ERROR_REASON_LOCATION_UNREACHABLE) != hung {
			t.Errorf("%d: %v", i, result)
		}
	}
	if most.Load() > 16 || most.Load() < 2 {
		t.Errorf("%d at once", most.Load())
	}
}

// E8: a view costs exactly the calls that a cloud controller manager makes to learn the same. P1: a node without
// a provider ID is described; digitalocean and kubevirt refuse every other query about it.
func TestAViewCostsWhatItCostsUpstream(t *testing.T) {
	for _, row := range []struct {
		view  pb.InstanceView
		id    string
		calls string
		state pb.InstanceState
	}{
		{pb.InstanceView_INSTANCE_VIEW_METADATA, "fake://a", "metadata", there},
		{pb.InstanceView_INSTANCE_VIEW_METADATA, "", "metadata", there},
		{pb.InstanceView_INSTANCE_VIEW_EXISTENCE, "fake://a", "exists shutdown", running},
		{pb.InstanceView_INSTANCE_VIEW_EXISTENCE, "", "metadata shutdown", running},
		{pb.InstanceView_INSTANCE_VIEW_ALL, "fake://a", "exists shutdown metadata", running},
		{pb.InstanceView_INSTANCE_VIEW_UNSPECIFIED, "", "metadata shutdown", running},
		{pb.InstanceView_INSTANCE_VIEW_METADATA, "other://a", "", notOwned},
	} {
		t.Run(fmt.Sprint(row.view, row.id), func(t *testing.T) {
			cloud, calls := newer(), []string{}
			needsID := func(call string, node *v1.Node) error {
				if calls = append(calls, call); node.Spec.ProviderID == "" {
					return errors.New("the provider ID is empty")
				}
				return nil
			}
			cloud.exists = func(_ context.Context, node *v1.Node) (bool, error) { return true, needsID("exists", node) }
			cloud.shutdown = func(_ context.Context, node *v1.Node) (bool, error) { return false, needsID("shutdown", node) }
			cloud.metadata = func(context.Context, *v1.Node) (*cloudprovider.InstanceMetadata, error) {
				calls = append(calls, "metadata")
				return &cloudprovider.InstanceMetadata{ProviderID: "fake://a"}, nil
			}
			request := batch(&pb.NodeRef{Name: "a", ProviderId: row.id})
			request.View = row.view
			answer, err := pb.NewInstancesClient(serve(t, cloud)).BatchGetInstances(soon(t), request)
			if err != nil {
				t.Fatal(err)
			}
			result := answer.GetResults()[0]
			if result.GetError() != nil || result.GetState() != row.state || strings.Join(calls, " ") != row.calls ||
				(row.state != notOwned && result.GetInstance().GetProviderId() != "fake://a") {
				t.Errorf("%v after %v", result, calls)
			}
		})
	}
}

// With InstanceMetadata alone, an error proves nothing, and an instance that cannot be described yet exists.
func TestADescriptionThatFails(t *testing.T) {
	for name, row := range map[string]struct {
		found  *cloudprovider.InstanceMetadata
		err    error
		state  pb.InstanceState
		reason pb.ErrorReason
	}{
		"nil":       {nil, nil, there, pb.ErrorReason_ERROR_REASON_METADATA_NOT_READY},
		"not found": {nil, cloudprovider.InstanceNotFound, unspecified, pb.ErrorReason_ERROR_REASON_INSTANCE_NOT_FOUND},
		"failed":    {nil, errors.New("500"), unspecified, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := newer()
			cloud.metadata = func(context.Context, *v1.Node) (*cloudprovider.InstanceMetadata, error) { return row.found, row.err }
			request := batch(&pb.NodeRef{Name: "a", ProviderId: "fake://a"})
			request.View = pb.InstanceView_INSTANCE_VIEW_METADATA
			answer, err := pb.NewInstancesClient(serve(t, cloud)).BatchGetInstances(soon(t), request)
			if err != nil {
				t.Fatal(err)
			}
			if got := answer.GetResults()[0]; got.GetState() != row.state || got.GetError().GetReason() != row.reason || got.GetInstance() != nil {
				t.Error(got)
			}
		})
	}
}

func TestOnlyWhatIsSupportedIsServed(t *testing.T) {
	cloud := newer()
	cloud.DisableRoutes, cloud.DisableLoadBalancers, cloud.DisableClusters = true, true, true
	provider, err := bridge.New(cloud)
	if err != nil || strings.Join(provider.ServiceNames()[2:], " ") != "ccm.cloudprovider.v1alpha1.Instances ccm.cloudprovider.v1alpha1.Volumes" {
		t.Error(provider.ServiceNames(), err)
	}
	cloud.noClusterID = true
	if _, err := bridge.New(cloud); err == nil || !strings.Contains(err.Error(), "has no cluster ID") || !strings.Contains(err.Error(), "--allow-untagged-cloud") {
		t.Error(err)
	}
	if _, err := bridge.New(cloud, bridge.WithAllowUntaggedCloud()); err != nil {
		t.Error(err)
	}
	if _, err := bridge.New(nil); err == nil {
		t.Error("nothing was bridged")
	}
}

// aws leaves out labels that the node has already; nothing takes them from it for that.
func TestLabelsThatTheNodeHasFromTheProviderAreToldAgain(t *testing.T) {
	cloud := newer()
	cloud.metadata = func(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
		labels := map[string]string{"cloud.example/rack": "r2"}
		if _, has := node.Labels["topology.cloud.example/zone-id"]; !has {
			labels["topology.cloud.example/zone-id"] = "z1"
		}
		return &cloudprovider.InstanceMetadata{ProviderID: node.Spec.ProviderID, AdditionalLabels: labels}, nil
	}
	node := &pb.NodeRef{
		Name: "a", Uid: "a", ProviderId: "fake://a",
		Labels: map[string]string{
			"topology.cloud.example/zone-id": "z1", "cloud.example/rack": "r1", "cloud.example/user": "mine", "topology.kubernetes.io/zone": "z",
		},
		Annotations: map[string]string{
			"cloudprovider.ccm/owned-labels": "cloud.example/gone=x,cloud.example/rack=r1,!cloud.example/user,topology.cloud.example/zone-id=z1,topology.kubernetes.io/zone=z",
		},
	}
	request := batch(node)
	request.View = pb.InstanceView_INSTANCE_VIEW_METADATA
	answer, err := pb.NewInstancesClient(serve(t, cloud)).BatchGetInstances(soon(t), request)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"topology.cloud.example/zone-id": "z1", "cloud.example/rack": "r2"}
	if got := answer.GetResults()[0].GetInstance().GetLabels(); !maps.Equal(got, want) {
		t.Error(got)
	}
}

// otherName is a provider of another name.
type otherName struct {
	*cloud
	name string
}

func (n *otherName) ProviderName() string { return n.name }

// vsphere's reads write maps without a lock.
func TestSomeProvidersAreAskedAboutOneInstanceAtATime(t *testing.T) {
	for name, want := range map[string]int32{"vsphere": 1, "fake": 2} {
		var running, most atomic.Int32
		cloud := &otherName{newer(), name}
		both := make(chan struct{})
		cloud.exists = func(ctx context.Context, _ *v1.Node) (bool, error) {
			now := running.Add(1)
			defer running.Add(-1)
			if most.Store(max(most.Load(), now)); now == 2 {
				close(both)
			}
			// As long as a second one would take to come, if none may.
			wait := patience
			if want == 1 {
				wait = 50 * time.Millisecond
			}
			select {
			case <-both:
			case <-time.After(wait):
			}
			return true, nil
		}
		nodes := []*pb.NodeRef{{Name: "a", Uid: "a", ProviderId: name + "://a"}, {Name: "b", Uid: "b", ProviderId: name + "://b"}}
		conn := serve(t, cloud)
		if _, err := pb.NewInstancesClient(conn).BatchGetInstances(soon(t), batch(nodes...)); err != nil || most.Load() != want {
			t.Error(name, most.Load(), err)
		}
		told, err := pb.NewCloudProviderClient(conn).GetCapabilities(soon(t), &pb.GetCapabilitiesRequest{})
		if err != nil || (told.GetLimits().GetMaxConcurrentReads() == 1) != (name == "vsphere") {
			t.Error(name, told.GetLimits(), err)
		}
	}
}

// The process and the rest of the batch go on.
func TestAPanicIsTheErrorOfOneItem(t *testing.T) {
	cloud := newer()
	conn := serve(t, cloud)
	balancers := pb.NewLoadBalancersClient(conn)
	items := []*pb.LoadBalancerUpdate{{Service: service("a"), DesiredDigest: "digest-2"}, {Service: service("bad"), DesiredDigest: "digest-2"}}
	for _, item := range items {
		if _, err := balancers.EnsureLoadBalancer(soon(t), ensureRequest(item.GetService().GetRef().GetUid())); err != nil {
			t.Fatal(err)
		}
	}
	cloud.exists = func(_ context.Context, node *v1.Node) (bool, error) {
		if node.Name == "bad" {
			panic("no region")
		}
		return true, nil
	}
	cloud.update = func(_ context.Context, service *v1.Service, _ []*v1.Node) error {
		if service.UID == "bad" {
			panic("no pool")
		}
		return nil
	}
	answer, err := pb.NewInstancesClient(conn).BatchGetInstances(soon(t), batch(
		&pb.NodeRef{Name: "a", ProviderId: "fake://a"}, &pb.NodeRef{Name: "bad", ProviderId: "fake://b"},
	))
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range answer.GetResults() {
		if (result.GetError() != nil) != (result.GetKey() == "bad") {
			t.Error(result)
		}
	}
	for uid, result := range update(t, balancers, soon(t), items...) {
		if (result.GetError() != nil) != (uid == "bad") {
			t.Error(result)
		}
	}
}
