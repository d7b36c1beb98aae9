// Package mocked is the published provider over its vendor's own in-memory mock of the API. A directory controls the mock and shows
// its state:
//
//	machines/NAME     one line: "STATE ZONE ADDRESS", for example "running zone-a 10.0.0.1"; there is one zone
//	balancers/NAME    one line: "NAMESPACE/SERVICE", then the name of each node behind it; written after each call
//	ports/SERVICE     one line for each range of ports
//	left              one line for each other resource
//
// The mock's state is lost with its process; balancers are then created anew.
package mocked

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/GoogleCloudPlatform/k8s-cloud-provider/pkg/cloud"
	"github.com/GoogleCloudPlatform/k8s-cloud-provider/pkg/cloud/filter"
	"github.com/GoogleCloudPlatform/k8s-cloud-provider/pkg/cloud/meta"
	"github.com/GoogleCloudPlatform/k8s-cloud-provider/pkg/cloud/mock"
	"github.com/spf13/pflag"
	compute "google.golang.org/api/compute/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider-gcp/providers/gce"
)

// Zone is the only zone.
const Zone = "zone-a"

var dir = pflag.String("mock-dir", "", "`directory` that controls the mock of Google's API")

func init() {
	cloudprovider.RegisterCloudProvider("gce-mock", func(io.Reader) (cloudprovider.Interface, error) { return New(*dir) })
}

// Cloud is the provider, which reads the directory before calls that need instances, and writes its state there after each change.
type Cloud struct {
	*gce.Cloud
	mock   *cloud.MockGCE
	folder string
	mu     sync.Mutex
}

// New creates a provider whose mock the directory folder controls.
func New(folder string) (*Cloud, error) {
	if folder == "" {
		return nil, errors.New("no directory for the mock: set --mock-dir")
	}
	for _, part := range []string{"machines", "balancers", "ports"} {
		if err := os.MkdirAll(filepath.Join(folder, part), 0o700); err != nil {
			return nil, err
		}
	}
	values := gce.DefaultTestClusterValues()
	values.ZoneName, values.Region = Zone, "zone"
	provider := gce.NewFakeGCECloud(values)
	provider.AlphaFeatureGate = gce.NewAlphaFeatureGate(nil)
	api := provider.Compute().(*cloud.MockGCE)
	work(api)
	return &Cloud{Cloud: provider, mock: api, folder: folder}, nil
}

// work installs the hooks without which parts of the mock's API do nothing, as the vendor's tests do.
func work(api *cloud.MockGCE) {
	api.MockTargetPools.AddInstanceHook, api.MockTargetPools.RemoveInstanceHook = mock.AddInstanceHook, mock.RemoveInstanceHook
	api.MockForwardingRules.InsertHook = mock.InsertFwdRuleHook
	api.MockAddresses.InsertHook, api.MockAddresses.X = mock.InsertAddressHook, mock.AddressAttributes{}
	api.MockInstanceGroups.X = mock.InstanceGroupAttributes{
		InstanceMap: map[meta.Key]map[string]*compute.InstanceWithNamedPorts{}, Lock: &sync.Mutex{},
	}
	api.MockInstanceGroups.AddInstancesHook, api.MockInstanceGroups.RemoveInstancesHook = mock.AddInstancesHook, mock.RemoveInstancesHook
	api.MockInstanceGroups.ListInstancesHook = mock.ListInstancesHook
	api.MockRegionBackendServices.UpdateHook = mock.UpdateRegionBackendServiceHook
	api.MockHealthChecks.UpdateHook = mock.UpdateHealthCheckHook
	api.MockZones.Objects[*meta.GlobalKey(Zone)] = &cloud.MockZonesObj{Obj: &compute.Zone{Name: Zone, Region: "projects/1/regions/zone"}}
	api.MockFirewalls.UpdateHook, api.MockFirewalls.PatchHook = mock.UpdateFirewallHook, mock.UpdateFirewallHook
}

// SetInformers hides the provider's own, which panics: a provider created with the mock lacks the map that counts the zones of nodes.
func (c *Cloud) SetInformers(informers.SharedInformerFactory) {}

func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c, true }

func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }

func (c *Cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	if err := c.look(ctx); err != nil {
		return false, err
	}
	return c.Cloud.InstanceExists(ctx, node)
}

func (c *Cloud) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	if err := c.look(ctx); err != nil {
		return nil, err
	}
	return c.Cloud.InstanceMetadata(ctx, node)
}

func (c *Cloud) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	if err := c.look(ctx); err != nil {
		return nil, err
	}
	defer c.show(ctx)
	return c.Cloud.EnsureLoadBalancer(ctx, cluster, service, nodes)
}

func (c *Cloud) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	if err := c.look(ctx); err != nil {
		return err
	}
	defer c.show(ctx)
	return c.Cloud.UpdateLoadBalancer(ctx, cluster, service, nodes)
}

func (c *Cloud) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	defer c.show(ctx)
	return c.Cloud.EnsureLoadBalancerDeleted(ctx, cluster, service)
}

// look creates and deletes the mock's instances so that they match the files in machines/.
func (c *Cloud) look(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	there := map[string]bool{}
	files, err := os.ReadDir(filepath.Join(c.folder, "machines"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(c.folder, "machines", file.Name()))
		words := strings.Fields(string(text))
		if err != nil || strings.HasSuffix(file.Name(), "~") || len(words) != 3 {
			continue
		}
		there[file.Name()] = true
		key := meta.ZonalKey(file.Name(), Zone)
		if known, _ := c.mock.Instances().Get(ctx, key); known != nil {
			continue
		}
		if err := c.mock.Instances().Insert(ctx, key, &compute.Instance{
			Name: file.Name(), Zone: Zone, Status: strings.ToUpper(words[0]), MachineType: "zones/" + Zone + "/machineTypes/e2-small",
			Tags:              &compute.Tags{Items: []string{file.Name()}},
			NetworkInterfaces: []*compute.NetworkInterface{{NetworkIP: words[2]}},
		}); err != nil {
			return err
		}
	}
	all, err := c.mock.Instances().List(ctx, Zone, filter.None)
	for _, one := range all {
		if !there[one.Name] {
			_ = c.mock.Instances().Delete(ctx, meta.ZonalKey(one.Name, Zone))
		}
	}
	return err
}

// show writes the mock's state to the directory.
func (c *Cloud) show(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	balancers, ports := map[string]string{}, map[string]string{}
	rules, _ := c.mock.ForwardingRules().List(ctx, c.Region(), filter.None)
	for _, rule := range rules {
		var described struct {
			Service string `json:"kubernetes.io/service-name"`
		}
		_ = json.Unmarshal([]byte(rule.Description), &described)
		balancers[rule.Name] = strings.Join(append([]string{described.Service}, c.behind(ctx, rule)...), "\n") + "\n"
		ports[path.Base(described.Service)] = strings.Join(append(rule.Ports, rule.PortRange), "\n") + "\n"
	}
	c.write("balancers", balancers)
	c.write("ports", ports)
	c.write(".", map[string]string{"left": strings.Join(c.Left(ctx), "\n")})
}

// behind returns the nodes behind a balancer: those of its target pool, or of all instance groups.
func (c *Cloud) behind(ctx context.Context, rule *compute.ForwardingRule) (names []string) {
	if rule.BackendService == "" {
		pool, err := c.mock.TargetPools().Get(ctx, meta.RegionalKey(rule.Name, c.Region()))
		if err != nil {
			return nil
		}
		for _, link := range pool.Instances {
			names = append(names, path.Base(link))
		}
		return names
	}
	groups, _ := c.mock.InstanceGroups().List(ctx, Zone, filter.None)
	for _, group := range groups {
		all, _ := c.mock.InstanceGroups().ListInstances(ctx, meta.ZonalKey(group.Name, Zone), &compute.InstanceGroupsListInstancesRequest{}, filter.None)
		for _, one := range all {
			names = append(names, path.Base(one.Instance))
		}
	}
	return names
}

// Left returns all resources except instances: the parts of balancers.
func (c *Cloud) Left(ctx context.Context) (all []string) {
	region := c.Region()
	add := func(kind, name string) { all = append(all, kind+" "+name) }
	rules, _ := c.mock.ForwardingRules().List(ctx, region, filter.None)
	for _, one := range rules {
		add("forwarding rule", one.Name)
	}
	pools, _ := c.mock.TargetPools().List(ctx, region, filter.None)
	for _, one := range pools {
		add("target pool", one.Name)
	}
	services, _ := c.mock.RegionBackendServices().List(ctx, region, filter.None)
	for _, one := range services {
		add("backend service", one.Name)
	}
	addresses, _ := c.mock.Addresses().List(ctx, region, filter.None)
	for _, one := range addresses {
		add("address", one.Name)
	}
	firewalls, _ := c.mock.Firewalls().List(ctx, filter.None)
	for _, one := range firewalls {
		add("firewall", one.Name)
	}
	checks, _ := c.mock.HealthChecks().List(ctx, filter.None)
	for _, one := range checks {
		add("health check", one.Name)
	}
	older, _ := c.mock.HttpHealthChecks().List(ctx, filter.None)
	for _, one := range older {
		add("HTTP health check", one.Name)
	}
	groups, _ := c.mock.InstanceGroups().List(ctx, Zone, filter.None)
	for _, one := range groups {
		add("instance group", one.Name)
	}
	slices.Sort(all)
	return all
}

// write makes a subdirectory contain exactly these files, and replaces each of them atomically.
func (c *Cloud) write(part string, files map[string]string) {
	if part != "." {
		there, _ := filepath.Glob(filepath.Join(c.folder, part, "*"))
		for _, file := range there {
			if _, stays := files[filepath.Base(file)]; !stays {
				_ = os.Remove(file)
			}
		}
	}
	for name, text := range files {
		file := filepath.Join(c.folder, part, name)
		if err := os.WriteFile(file+"~", []byte(text), 0o600); err != nil {
			panic(fmt.Sprintf("cannot write the mock's state: %v", err))
		}
		_ = os.Rename(file+"~", file)
	}
}
