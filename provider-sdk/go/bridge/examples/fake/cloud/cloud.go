// Package cloud is upstream's fake cloud (k8s.io/cloud-provider/fake) with its state in a directory, in which tests in any
// language see and change the cloud.
//
//	machines/NAME     one line: "STATE ZONE ADDRESS", for example "running zone-a 10.0.0.1"; states are running and stopped
//	balancers/NAME    one line: "NAMESPACE/SERVICE", then one line for each backend
//	standing/NAME     its state in the cloud, as JSON: ports, families, source ranges, targets, health check
//	routes/...        in the cloud's own format
//	disks/NAME        one line: its zone
//	clusters/NAME     one line: the address of its control plane
//	full              while it exists, no balancer is created or changed; one that exists gets other backends
//	slow              while it exists, a new balancer takes two seconds
//	latency           while it exists, every call takes as long as it says, for example "1s"
//	outage            while it exists, every call fails with its text
//	calls/METHOD      grows by one byte with each call, if the directory "calls" exists
//
// It does not know the bridge: it is written like a vendor's provider.
package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/fake"
)

const prefix = "fake://"

// Flags of the vendor's own.
var (
	dir     = pflag.String("fake-cloud-dir", "", "`directory` with the cloud's state")
	latency = pflag.Duration("fake-cloud-latency", 0, "how long the cloud takes for each call")
)

func init() {
	cloudprovider.RegisterCloudProvider("fake", func(io.Reader) (cloudprovider.Interface, error) { return New(*dir) })
}

// Folder returns the directory of --fake-cloud-dir.
func Folder() string { return *dir }

// Cloud overrides the parts of upstream's fake that answer the same for all nodes and Services.
type Cloud struct {
	*fake.Cloud
	folder string
	// mu guards upstream's fake, which does not support concurrent calls.
	mu    sync.Mutex
	begun map[string]time.Time
}

// New returns the cloud in a directory, which it creates if it is missing.
func New(folder string) (*Cloud, error) {
	if folder == "" {
		return nil, errors.New("no directory for the cloud: set --fake-cloud-dir")
	}
	for _, part := range []string{"machines", "balancers", "standing", "routes", "disks", "clusters"} {
		if err := os.MkdirAll(filepath.Join(folder, part), 0o700); err != nil {
			return nil, err
		}
	}
	inner := &fake.Cloud{
		EnableInstancesV2: true, ExternalIP: net.IPv4(192, 0, 2, 1), RouteMap: map[string]*fake.Route{},
		Zone: cloudprovider.Zone{Region: "region-1"},
	}
	return &Cloud{Cloud: inner, folder: folder, begun: map[string]time.Time{}}, nil
}

func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c, true }

func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }

func (c *Cloud) Routes() (cloudprovider.Routes, bool) { return c, true }

// called counts a call and takes the time that a call takes.
func (c *Cloud) called(method string) {
	defer time.Sleep(c.takes())
	file, err := os.OpenFile(filepath.Join(c.folder, "calls", method), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return // Nobody counts.
	}
	defer func() { _ = file.Close() }()
	_, _ = file.WriteString(".")
}

// takes returns how long a call takes at the moment.
func (c *Cloud) takes() time.Duration {
	text, err := os.ReadFile(filepath.Join(c.folder, "latency"))
	if err != nil {
		return *latency
	}
	now, _ := time.ParseDuration(strings.TrimSpace(string(text)))
	return now
}

// outage returns the reason why every call fails at the moment, nil if none does.
func (c *Cloud) outage() error {
	text, err := os.ReadFile(filepath.Join(c.folder, "outage"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("the cloud is down: %s", strings.TrimSpace(string(text)))
}

type machine struct{ state, zone, address string }

// machineOf names the machine that a node says it is: by its provider ID, or else by its name.
func machineOf(node *v1.Node) string {
	return filepath.Base(cmp.Or(strings.TrimPrefix(node.Spec.ProviderID, prefix), node.Name))
}

// machine finds a node's machine by provider ID or else by name; nil if there is none.
func (c *Cloud) machine(node *v1.Node) (*machine, error) {
	if err := c.outage(); err != nil {
		return nil, err
	}
	name := machineOf(node)
	text, err := os.ReadFile(filepath.Join(c.folder, "machines", name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	words := strings.Fields(string(text))
	if err != nil || len(words) != 3 {
		return nil, fmt.Errorf("cannot parse machine %s: %q: %w", name, text, err)
	}
	return &machine{words[0], words[1], words[2]}, nil
}

func (c *Cloud) InstanceExists(_ context.Context, node *v1.Node) (bool, error) {
	c.called("InstanceExists")
	found, err := c.machine(node)
	return found != nil, err
}

func (c *Cloud) InstanceShutdown(_ context.Context, node *v1.Node) (bool, error) {
	c.called("InstanceShutdown")
	found, err := c.machine(node)
	return found != nil && found.state == "stopped", err
}

func (c *Cloud) InstanceMetadata(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	c.called("InstanceMetadata")
	found, err := c.machine(node)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, cloudprovider.InstanceNotFound
	}
	id := node.Spec.ProviderID
	if id == "" {
		id = prefix + node.Name
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID: id, InstanceType: "fake.small", Zone: found.zone, Region: c.Zone.Region,
		NodeAddresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: found.address}},
	}, nil
}
