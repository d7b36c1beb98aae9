// Package habits is the example cloud with things that published providers do besides calling their cloud. Each habit names a
// provider that has it, and is switched on separately: by New in a test, by --habits in a process.
//
// It does not know the bridge: upstream's controllers run it in their own process, too, and leave the same state.
package habits

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"cloudprovider.ccm/sdk/bridge/examples/fake/cloud"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// Habit is a habit of a published provider.
type Habit string

const (
	// RefusesEmptyID: digitalocean and kubevirt fail when asked whether an instance without a provider ID exists.
	RefusesEmptyID Habit = "refuses-empty-id"
	// PatchesLate: openstack patches annotations in a defer, and an error of the patch becomes an error of the Ensure.
	PatchesLate Habit = "patches-late"
	// PatchesID: digitalocean writes the balancer's ID on the Service, and finds the balancer only by it.
	PatchesID Habit = "patches-id"
	// OwnFinalizer: gce adds a finalizer, and deletes nothing for a Service without it.
	OwnFinalizer Habit = "own-finalizer"
	// ReadsConfigMap: gce keeps its cluster's ID in a ConfigMap, which it creates if it is missing.
	ReadsConfigMap Habit = "reads-configmap"
	// ReadsSecrets: vsphere has an informer of Secrets, for its credentials.
	ReadsSecrets Habit = "reads-secrets"
	// LocksLease: azure takes a Lease before it changes something that other controllers change too.
	LocksLease Habit = "locks-lease"
	// ListsServices: azure lists all Services to decide which rules of a shared address to keep.
	ListsServices Habit = "lists-services"
	// WantsNodeLister: hcloud looks up nodes in a lister that its constructor needs.
	WantsNodeLister Habit = "wants-node-lister"
	// RunsLoops: digitalocean rewrites a firewall regularly, from the Services in its informer.
	RunsLoops Habit = "runs-loops"
	// Retries: digitalocean returns RetryError until a new balancer is active.
	Retries Habit = "retries"
	// WritesNodes: scaleway and linode start a controller in Initialize that writes labels and taints on nodes.
	WritesNodes Habit = "writes-nodes"
	// OwnMetrics: hcloud has its own registry, openstack uses component-base's.
	OwnMetrics Habit = "own-metrics"
	// TellsEvents: most record Events on the Service, with a request's id in them.
	TellsEvents Habit = "tells-events"
	// Panics: aws dereferences a field that its cloud's answer lacks.
	Panics Habit = "panics"
	// Hangs: vsphere calls its cloud without a deadline.
	Hangs Habit = "hangs"
)

// The objects that the habits write.
const (
	IDKey      = "difficult.example/load-balancer-id"
	AddressKey = "difficult.example/address"
	Finalizer  = "difficult.example/balancer"
	// HostKey is a label of nodes, SlowKey a taint.
	HostKey = "difficult.example/host"
	SlowKey = "difficult.example/slow"
	// Namespace and Name are those of the ConfigMap and of the Lease.
	Namespace, Name = "kube-system", "difficult-provider"
)

var given = pflag.String("habits", "", "`HABIT,...`: what the cloud provider does besides calling its cloud")

func init() {
	cloudprovider.RegisterCloudProvider("difficult", func(io.Reader) (cloudprovider.Interface, error) { return flagged(nil) })
}

// Build creates it with a lister of nodes, as hcloud's routes need it.
func Build(_ context.Context, _ io.Reader, _ cloudprovider.ControllerClientBuilder, shared informers.SharedInformerFactory) (cloudprovider.Interface, error) {
	return flagged(shared)
}

func flagged(shared informers.SharedInformerFactory) (cloudprovider.Interface, error) {
	var all []Habit
	for habit := range strings.SplitSeq(*given, ",") {
		all = append(all, Habit(habit))
	}
	made, err := New(cloud.Folder(), all...)
	if err == nil && shared != nil && made.has(WantsNodeLister) {
		made.nodes = shared.Core().V1().Nodes().Lister()
	}
	return made, err
}

// Cloud is the cloud in a directory, see package cloud, which also contains:
//
//	ports/SERVICE     the ports of its balancer
//	ids/ID            a balancer that is found by its ID: "NAMESPACE/SERVICE"
//	rules/SERVICE     a rule of the shared address
//	firewall          a line for each Service that the loop saw
//	begun/...         calls that have happened once
//	hang              while it exists, calls about the object that it names hang
type Cloud struct {
	*cloud.Cloud
	folder string
	habits map[Habit]bool

	client   kubernetes.Interface
	stop     <-chan struct{}
	services listers.ServiceLister
	nodes    listers.NodeLister

	mu   sync.Mutex
	seen *v1.Service
}

// New creates the cloud over a directory.
func New(folder string, habits ...Habit) (*Cloud, error) {
	inner, err := cloud.New(folder)
	if err != nil {
		return nil, err
	}
	c := &Cloud{Cloud: inner, folder: folder, habits: map[Habit]bool{}}
	for _, habit := range habits {
		c.habits[habit] = true
	}
	for _, part := range []string{"ports", "ids", "rules", "begun"} {
		if err := os.MkdirAll(filepath.Join(folder, part), 0o700); err != nil {
			return nil, err
		}
	}
	if c.has(OwnMetrics) {
		registerMetrics()
	}
	return c, nil
}

func (c *Cloud) has(habit Habit) bool { return c.habits[habit] }

// Client returns the client that Initialize created.
func (c *Cloud) Client() kubernetes.Interface { return c.client }

// Nodes returns the lister passed to the constructor or SetInformers.
func (c *Cloud) Nodes() listers.NodeLister { return c.nodes }

// Seen returns the Service of the last call.
func (c *Cloud) Seen() *v1.Service {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// IDs returns the balancers that are found by their ID.
func (c *Cloud) IDs() []string { return c.names("ids") }

// Balancers returns those that are found by their name.
func (c *Cloud) Balancers() []string { return c.names("balancers") }

func (c *Cloud) names(part string) []string {
	files, _ := filepath.Glob(filepath.Join(c.folder, part, "*[^~]"))
	for at, file := range files {
		files[at] = filepath.Base(file)
	}
	return files
}

func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c, true }

func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }

func (c *Cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	if err := c.about(node.Name, node.Spec.ProviderID); err != nil {
		return false, err
	}
	return c.Cloud.InstanceExists(ctx, node)
}

func (c *Cloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	if err := c.about(node.Name, node.Spec.ProviderID); err != nil {
		return false, err
	}
	return c.Cloud.InstanceShutdown(ctx, node)
}

func (c *Cloud) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	c.hang(node.Name)
	c.panicOnce(node.Name)
	return c.Cloud.InstanceMetadata(ctx, node)
}

func (c *Cloud) about(name, providerID string) error {
	c.hang(name)
	if c.has(RefusesEmptyID) && providerID == "" {
		return errors.New("provider ID cannot be empty")
	}
	return nil
}

// hang does not return while the file names the object, whatever the context says.
func (c *Cloud) hang(name string) {
	for c.has(Hangs) {
		text, err := os.ReadFile(filepath.Join(c.folder, "hang"))
		if err != nil || strings.TrimSpace(string(text)) != name {
			return
		}
		pause()
	}
}

func (c *Cloud) panicOnce(name string) {
	if c.has(Panics) && c.first("panic-"+name) {
		panic("the answer has no health check")
	}
}

// first reports whether this happens for the first time, even across restarts.
func (c *Cloud) first(what string) bool {
	path := filepath.Join(c.folder, "begun", what)
	if _, err := os.Stat(path); err == nil {
		return false
	}
	_ = os.WriteFile(path, nil, 0o600)
	return true
}
