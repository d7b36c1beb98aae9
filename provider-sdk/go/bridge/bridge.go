// Package bridge serves a provider that was written for cloudprovider.Interface (k8s.io/cloud-provider) as a sidecar.
//
// The provider itself is unchanged. The bridge builds the Nodes and Services that the provider
// reads from what the host sends, calls the provider once per item of a batch, several at a time, and translates
// sentinel errors, RetryError, panics and incomplete results into those of the contract.
//
// The bridge does not invent what the interface cannot express. Only (false, nil) for a provider ID with the provider's
// own prefix is an authoritative ABSENT. Load balancers are known only if this process applied them (memory); the host keeps
// what is applied across restarts. The provider finds resources by its own names, not by the cluster's uid.
package bridge

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/bridge/vendors"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/component-base/metrics/legacyregistry"
)

const (
	// defaultConcurrency is how many load balancers the provider changes at once. Upstream's --concurrent-service-syncs is 1, which
	// one call that hangs would fill.
	defaultConcurrency = 4
	// concurrent is how many reads run at once.
	concurrent = 16
	// routesAtOnce is how many routes a call changes at once: as upstream, since azure, for one, gathers changes for half a minute.
	routesAtOnce = 200
	// instancesAtOnce is how many queries a call has at most, and readEach how many for each that may run at once. batchesAtOnce is
	// how many calls read at once: with more, each gets too few places to be done within its deadline.
	instancesAtOnce, readEach, batchesAtOnce = 500, 32, 8
	// inTimeEach is how many mutations of a batch one worker completes within a deadline, if each takes the cloud a few seconds.
	inTimeEach = 8
	// hangsAfter: a change that takes this many times the patience hangs, and leaves its place to another.
	hangsAfter = 30
)

// backendLabels are the node labels that providers read to add an instance to a load balancer: its location and its
// kind. Changes of other labels do not concern load balancers, and cost no call.
var backendLabels = []string{
	"topology.kubernetes.io/", "failure-domain.beta.kubernetes.io/", "node.kubernetes.io/",
	"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch",
}

// habit is what one provider needs and most do not.
type habit struct {
	// reads is how many run at once, changes how many balancers are made or changed at once; 0: the default. Upstream's controllers
	// ask one after the other, and its --concurrent-service-syncs, which azure's manager lets nobody raise, is 1.
	reads, changes int
	// forgets reports that the provider keeps in memory what only an Ensure brings back.
	forgets bool
}

var habits = map[string]habit{
	// Where it has several load balancers, it knows only from Ensures which of them has a Service.
	"azure": {changes: 1, forgets: true},
	// Its calls write into objects that all share.
	"equinixmetal": {changes: 1},
	// Takes the first free address without a lock.
	"kubevip": {changes: 1},
	// Refuses what its own rate limit does not allow, instead of waiting.
	"oci": {reads: 1},
	// Its reads write maps without a lock, which ends the process.
	"vsphere": {reads: 1},
}

// with returns the names of the providers with a habit.
func with(has func(habit) bool) string {
	var names []string
	for name, one := range habits {
		if has(one) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Option configures the bridge.
type Option func(*bridge)

type bridge struct {
	cloud         cloudprovider.Interface
	parts         parts
	concurrency   int
	readers       int
	errors        func(error) *fault.Error
	patience      time.Duration
	allowUntagged bool
	nodeAddresses bool
	backendState  bool
	prefixes      []string
	capabilities  func(*pb.GetCapabilitiesResponse)
	options       []sdk.Option
	sshKeys       bool
	kubernetes    *rest.Config
	surroundings  *surroundings
	leading       *leading
	view          view
	mirrors       sync.Map // of *mirror, by cluster uid
	events        events
	reads         *reads
	reachable     reachable
	// forgets is nil if the provider's name decides.
	forgets *bool
	// balancerWorks and routeWorks are the running mutations.
	balancerWorks, routeWorks works

	backendLabels, nodeAnnotations, classes []string
	onlyClasses                             bool
	// vendorFlags are the vendor's flags that are set, and settings what is made of them. process is empty unless the provider forgets.
	vendorFlags, settings, process string
	// needs are the flags that are about a part which not every provider has.
	needs []need

	memory *memory
}

// WithConcurrency limits how many load balancers the provider changes at once, over all calls; the default is 4. Use 1
// for a provider whose calls for different Services share objects without a lock, as upstream calls it by default. A call that
// has not returned after 5 minutes counts no longer.
func WithConcurrency(calls int) Option {
	return func(b *bridge) { b.concurrency = max(calls, 1) }
}

// WithConcurrentReads limits how many reads of the provider run at once, over all calls; the default is 16, and 1 for providers that are
// known to need it. With 1 none begins before the one before has returned, and one that hangs for 5 minutes makes the process not serving.
// With more, one that hangs leaves its place after 10 seconds.
func WithConcurrentReads(calls int) Option {
	return func(b *bridge) { b.readers = max(calls, 1) }
}

// WithEnsureAfterRestart has the host ensure all load balancers once when this process is a new one, as upstream does at each start: for
// a provider that keeps in memory what only its EnsureLoadBalancer brings back. By default for providers that are known to.
func WithEnsureAfterRestart(ensure bool) Option {
	return func(b *bridge) { b.forgets = &ensure }
}

// WithErrors recognises the provider's errors: throttling, quotas, credentials and so on, which the host treats in ways of
// their own. `known` returns nil for any other error, which becomes INTERNAL_ERROR. The error that it is given has a text
// without a request's id, and the provider's own error in its chain. By default vendors.For the provider's name is used.
func WithErrors(known func(error) *fault.Error) Option {
	return func(b *bridge) { b.errors = known }
}

// WithAllowUntaggedCloud serves a provider that has no cluster ID of its own (HasClusterID), as the flag
// --allow-untagged-cloud of a cloud controller manager does.
func WithAllowUntaggedCloud() Option {
	return func(b *bridge) { b.allowUntagged = true }
}

// WithRouteNodeAddresses declares that the provider's routes contain node addresses (Route.EnableNodeAddresses): while there is no route
// yet, nothing else tells.
func WithRouteNodeAddresses() Option {
	return func(b *bridge) { b.nodeAddresses = true }
}

// WithProviderIDPrefixes replaces "NAME://" as the prefixes of provider IDs.
func WithProviderIDPrefixes(prefixes ...string) Option {
	return func(b *bridge) { b.prefixes = prefixes }
}

// WithBackendNodeLabels replaces the node labels whose changes update load balancers; a label that ends in "/" or "*"
// is a prefix. The values of other labels are as of the host's last query of the node's instance.
func WithBackendNodeLabels(keys ...string) Option {
	return func(b *bridge) { b.backendLabels = keys }
}

// WithBackendNodeState also updates every load balancer when one of its nodes is cordoned, tainted, or changes its
// Ready condition, for providers that select nodes by these. By default they are as of the host's last query of the
// node's instance.
func WithBackendNodeState() Option {
	return func(b *bridge) { b.backendState = true }
}

// WithNodeAnnotations lists the node annotations that the provider reads; none by default.
func WithNodeAnnotations(keys ...string) Option {
	return func(b *bridge) { b.nodeAnnotations = keys }
}

// WithLoadBalancerClasses lists the values of spec.loadBalancerClass that the provider serves; none by default.
func WithLoadBalancerClasses(classes ...string) Option {
	return func(b *bridge) { b.classes = classes }
}

// WithoutDefaultLoadBalancerClass leaves Services without a class to another provider.
func WithoutDefaultLoadBalancerClass() Option {
	return func(b *bridge) { b.onlyClasses = true }
}

// WithCapabilities changes limits, intervals, classes and wanted fields: change gets what the other options and the flags came to, and is
// called more than once. By default the bridge wants all labels and
// annotations of Services, all labels of nodes to identify their instances, and few fields of backends and route
// targets (WithBackendNodeLabels), since each change of those costs calls.
func WithCapabilities(change func(*pb.GetCapabilitiesResponse)) Option {
	return func(b *bridge) { b.capabilities = change }
}

// WithSDKOptions passes options to sdk.New, for example a version, a logger or metrics.
func WithSDKOptions(options ...sdk.Option) Option {
	return func(b *bridge) { b.options = append(b.options, options...) }
}

// New bridges a provider and serves the parts that it reports to support: InstancesV2, or Instances with Zones;
// LoadBalancer; Routes; Clusters; and PVLabeler. For its initialization see WithKubernetes and WithInitializeAtStart.
func New(cloud cloudprovider.Interface, options ...Option) (*sdk.Provider, error) {
	return NewWith(context.Background(), nil, func(context.Context, io.Reader, cloudprovider.ControllerClientBuilder, informers.SharedInformerFactory) (cloudprovider.Interface, error) {
		return cloud, nil
	}, options...)
}

// Build creates a provider whose constructor needs more than its configuration (nil if there is none): Kubernetes
// clients, and informers, which the bridge starts after it has initialized the provider.
type Build func(ctx context.Context, config io.Reader, clients cloudprovider.ControllerClientBuilder, informers informers.SharedInformerFactory) (cloudprovider.Interface, error)

// NewWith is New for a provider that build creates.
func NewWith(ctx context.Context, config io.Reader, build Build, options ...Option) (*sdk.Provider, error) {
	stop := make(chan struct{})
	provider, err := bridged(ctx, config, build, stop, options)
	if err != nil {
		close(stop)
		return nil, err
	}
	provider.OnStop(func() { close(stop) })
	return provider, nil
}

func bridged(ctx context.Context, config io.Reader, build Build, stop <-chan struct{}, options []Option) (*sdk.Provider, error) {
	b := &bridge{
		leading: newLeading(), memory: newMemory(),
		patience: stragglerAfter, backendLabels: backendLabels,
	}
	for _, option := range options {
		option(b)
	}
	if b.surroundings == nil {
		if err := b.surround(stop); err != nil {
			return nil, err
		}
	}
	if !b.leading.atStart {
		b.surroundings.stop = either(b.surroundings.stop, b.leading.over)
		b.options = append(b.options, sdk.WithGate(b.gate), sdk.WithWhileLeading(b.whileLed))
	}
	var text []byte
	if config != nil {
		var err error
		if text, err = io.ReadAll(config); err != nil {
			return nil, fmt.Errorf("--cloud-config: %w", err)
		}
		config = bytes.NewReader(text)
	}
	err := guarded(func() (err error) {
		b.cloud, err = build(ctx, config, b.surroundings.clients, b.surroundings.shared)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case b.cloud == nil:
		return nil, errors.New("the cloud provider to bridge is nil")
	case !b.cloud.HasClusterID() && !b.allowUntagged:
		return nil, fmt.Errorf("the cloud provider %q has no cluster ID, so its resources could be taken for another cluster's; "+
			"configure one, or set --allow-untagged-cloud (WithAllowUntaggedCloud)", b.cloud.ProviderName())
	}
	if b.errors == nil {
		b.errors = vendors.For(b.cloud.ProviderName())
	}
	known := habits[b.cloud.ProviderName()]
	b.readers = cmp.Or(b.readers, known.reads, concurrent)
	b.concurrency = cmp.Or(b.concurrency, known.changes, defaultConcurrency)
	b.settings = settings(string(text), b.vendorFlags)
	if *cmp.Or(b.forgets, &known.forgets) {
		b.process = "-" + rand.Text()[:8]
	}
	if len(b.prefixes) == 0 {
		b.prefixes = []string{b.cloud.ProviderName() + "://"}
	}
	b.view.wants = b.advertised().GetWants()
	b.balancerWorks.places, b.balancerWorks.inBatches = make(chan struct{}, b.concurrency), make(chan struct{}, b.concurrency)
	b.balancerWorks.hangs = hangsAfter * b.patience
	b.reads = &reads{places: make(chan struct{}, b.readers), limit: hangingPerCall * concurrent, patience: b.patience}
	b.options = append(b.options, sdk.WithIntroductions(b.memory.introduced))
	if b.leading.atStart {
		if err := b.initializeOnce(""); err != nil {
			return nil, err
		}
	} else if err := guarded(func() error { b.parts = b.ask(); return nil }); err != nil {
		return nil, fmt.Errorf("the cloud provider %q cannot say which parts it has before it is initialized; set --initialize-at-start: %w", b.cloud.ProviderName(), cmp.Or(errors.Unwrap(err), err))
	}
	if err := b.hasWhatFlagsNeed(); err != nil {
		return nil, err
	}
	provider, err := sdk.New(b.cloud.ProviderName(), append(b.served(), b.options...)...)
	if err != nil {
		return nil, err
	}
	b.reads.stuck = func(stuck bool) { provider.SetServing(!stuck) }
	return provider, nil
}

// need is a flag, the part of the provider that it is about, and how to find that.
type need struct {
	flag, part string
	is         func(parts) bool
}

// hasWhatFlagsNeed refuses flags that would do nothing: who sets them expects something.
func (b *bridge) hasWhatFlagsNeed() error {
	for _, one := range b.needs {
		if !one.is(b.parts) {
			return fmt.Errorf("--%s is about %s, and the cloud provider %q has none: leave the flag out, or configure the provider to have them", one.flag, one.part, b.cloud.ProviderName())
		}
	}
	if len(b.classes) > 0 && b.parts.balancers == nil {
		return fmt.Errorf("the bridge has load balancer classes (WithLoadBalancerClasses), and the cloud provider %q has no load balancers: leave the option out, or configure the provider to have them", b.cloud.ProviderName())
	}
	return nil
}

// parts are what the provider consists of; nil for what it does not support.
type parts struct {
	lookup    cloudprovider.InstancesV2
	keys      cloudprovider.Instances
	balancers cloudprovider.LoadBalancer
	routes    cloudprovider.Routes
	clusters  cloudprovider.Clusters
}

// ask asks the provider for its parts, and keeps those that it has no more. Before Initialize, only whether it has one counts: many
// return a copy of the clients and recorders that Initialize gives them.
func (b *bridge) ask() parts {
	now := b.parts
	if lookup := b.lookup(); lookup != nil {
		now.lookup = lookup
	}
	if keys, supported := b.cloud.Instances(); supported {
		now.keys = keys
	}
	if balancers, supported := b.cloud.LoadBalancer(); supported {
		now.balancers = balancers
	}
	if routes, supported := b.cloud.Routes(); supported {
		now.routes = routes
	}
	if clusters, supported := b.cloud.Clusters(); supported {
		now.clusters = clusters
	}
	return now
}

// served returns the parts that the provider reports to support.
func (b *bridge) served() []sdk.Option {
	told := []sdk.Option{
		sdk.WithProviderIDPrefix(b.prefixes...), sdk.WithCapabilities(b.advertised()), sdk.WithStatus(health{b}),
		sdk.WithMetrics(b.hangingCalls()), sdk.WithGatherers(legacyregistry.DefaultGatherer, prometheus.DefaultGatherer),
	}
	if b.parts.lookup != nil {
		served := sdk.Instances(&instances{b})
		if b.parts.keys != nil && b.sshKeys {
			served = &instancesWithKeys{&instances{b}}
		}
		told = append(told, sdk.WithInstances(served))
	}
	if b.parts.balancers != nil {
		told = append(told, sdk.WithLoadBalancers(&loadBalancers{b}))
	}
	if b.parts.routes != nil {
		told = append(told, sdk.WithRoutes(newRoutes(b)))
	}
	if b.parts.clusters != nil {
		told = append(told, sdk.WithClusters(&clusters{b}))
	}
	if labeler, supported := b.cloud.(cloudprovider.PVLabeler); supported {
		told = append(told, sdk.WithVolumes(&volumes{b, labeler}))
	}
	return told
}

func (b *bridge) advertised() *pb.GetCapabilitiesResponse {
	batches := max(min(b.readers, batchesAtOnce), 1)
	answer := &pb.GetCapabilitiesResponse{
		Wants: &pb.Wants{
			Identity: withState(withAnnotation(b.nodeFields("*"), ownedLabels)), RouteTarget: b.nodeFields(b.backendLabels...), Backend: b.nodeFields(b.backendLabels...),
			Service:              &pb.ServiceFields{Labels: []string{"*"}, Annotations: []string{"*"}, Finalizers: true, DeletionTime: true},
			LoadBalancerSettings: b.settings,
		},
		Limits: &pb.Limits{
			// The batches of all calls share the places.
			MaxBatchInstances:     uint32(min(readEach*b.readers/batches, instancesAtOnce)),
			MaxConcurrentReads:    uint32(batches),
			MaxBatchLoadBalancers: uint32(inTimeEach * b.concurrency), MaxBatchRoutes: 2 * routesAtOnce,
			// Neither routes, of which one batch runs at a time, nor the nodes of balancers wait for balancers.
			MaxConcurrentMutations: uint32(b.concurrency) + 2,
		},
		LoadBalancerClasses: b.classes, NoDefaultLoadBalancerClass: b.onlyClasses,
	}
	if b.backendState {
		withState(answer.Wants.Backend)
	}
	if b.parts.routes != nil && b.nodeAddresses {
		answer.Capabilities = append(answer.Capabilities, pb.Capability_CAPABILITY_ROUTE_NODE_ADDRESSES)
	}
	if b.capabilities != nil {
		b.capabilities(answer)
	}
	answer.Wants = cmp.Or(answer.Wants, &pb.Wants{})
	answer.Wants.LoadBalancerSettings = cmp.Or(answer.Wants.LoadBalancerSettings, b.settings) + b.process
	return answer
}

func (b *bridge) nodeFields(labels ...string) *pb.NodeFields {
	return &pb.NodeFields{
		SystemUuid: true, ProvidedNodeIps: true, Addresses: true, CreationTime: true, PodCidrs: true,
		Labels: slices.Clone(labels), Annotations: slices.Clone(b.nodeAnnotations),
	}
}

func withAnnotation(fields *pb.NodeFields, key string) *pb.NodeFields {
	if !slices.Contains(fields.Annotations, key) {
		fields.Annotations = append(slices.Clone(fields.Annotations), key)
	}
	return fields
}

// withState also requests the node's taints, cordon, readiness and deletion time.
func withState(fields *pb.NodeFields) *pb.NodeFields {
	fields.Taints, fields.Unschedulable, fields.Readiness, fields.DeletionTime = []string{"*"}, true, true, true
	return fields
}

// owns reports whether a provider ID is one of this provider's. A bare prefix is not.
func (b *bridge) owns(providerID string) bool {
	return slices.ContainsFunc(b.prefixes, func(prefix string) bool {
		return strings.HasPrefix(providerID, prefix) && providerID != prefix
	})
}

// clusterName returns the provider's name of the cluster: the host's --cluster-name, by default "kubernetes". The
// first name received with a uid stays, since the provider finds its resources by the name, and the contract by the
// uid. A later process keeps the first one that it receives.
func (b *bridge) clusterName(cluster *pb.ClusterRef) string {
	return cmp.Or(b.memory.clusterName(cluster.GetUid(), cluster.GetName()), "kubernetes")
}
