package sdk

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"slices"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"cloudprovider.ccm/sdk/scrub"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
)

// Provider is a complete and consistent provider: it serves what it advertises. New creates it; Main, Serve or Listen
// serves it, once.
type Provider struct {
	name          string
	vendorVersion string
	prefixes      []string
	epoch         string
	capabilities  *pb.GetCapabilitiesResponse
	log           *slog.Logger

	status        StatusReporter
	instances     Instances
	loadBalancers LoadBalancers
	routes        Routes
	volumes       Volumes
	clusters      Clusters

	introduced   func()
	leaderless   bool
	whileLeading func(context.Context, *pb.ClusterRef)
	gate         func(ctx context.Context, mutation bool) error

	advertised advertised
	metrics    *metrics
	life       *lifecycle
}

// Option configures a provider.
type Option func(*Provider)

// New creates a provider with this name: a DNS subdomain of at most 63 bytes, for example "aws". It serves exactly the
// services passed to it.
//
// The error names the problem: a name that is not a DNS subdomain, a capability without its methods, instances without
// a provider ID prefix, a limit or an interval that the contract forbids.
func New(name string, options ...Option) (*Provider, error) {
	provider := &Provider{
		name:         name,
		epoch:        rand.Text(),
		capabilities: &pb.GetCapabilitiesResponse{},
		log:          slog.Default(),
		metrics:      newMetrics(),
	}
	for _, option := range options {
		option(provider)
	}
	provider.log = slog.New(scrub.NewHandler(provider.log.Handler()))
	provider.advertise()
	if err := provider.check(); err != nil {
		return nil, err
	}
	provider.advertised = advertise(provider.capabilities)
	provider.life = newLifecycle(append([]string{"", healthService}, provider.ServiceNames()...))
	return provider, nil
}

// WithVendorVersion sets the version of the provider, in the vendor's own scheme; at most 64 bytes.
func WithVendorVersion(version string) Option {
	return func(p *Provider) { p.vendorVersion = version }
}

// WithProviderIDPrefix adds a prefix of provider IDs, for example "aws://". Instances need at least one.
func WithProviderIDPrefix(prefixes ...string) Option {
	return func(p *Provider) { p.prefixes = append(p.prefixes, prefixes...) }
}

// WithCapabilities sets limits, intervals, wanted fields, classes, and those capabilities that the methods do not show.
// Omitted values have their defaults, and New adds the other capabilities.
func WithCapabilities(capabilities *pb.GetCapabilitiesResponse) Option {
	return func(p *Provider) { p.capabilities = proto.CloneOf(cmp.Or(capabilities, &pb.GetCapabilitiesResponse{})) }
}

// WithStatus serves GetStatus. Without it, GetStatus returns no conditions.
func WithStatus(status StatusReporter) Option {
	return func(p *Provider) { p.status = status }
}

// WithInstances serves Instances, and the optional interfaces of the value: InstanceWatcher, InstanceLister,
// SSHKeyAdder.
func WithInstances(instances Instances) Option {
	return func(p *Provider) { p.instances = instances }
}

// WithLoadBalancers serves LoadBalancers.
func WithLoadBalancers(loadBalancers LoadBalancers) Option {
	return func(p *Provider) { p.loadBalancers = loadBalancers }
}

// WithRoutes serves Routes.
func WithRoutes(routes Routes) Option {
	return func(p *Provider) { p.routes = routes }
}

// WithVolumes serves Volumes.
func WithVolumes(volumes Volumes) Option {
	return func(p *Provider) { p.volumes = volumes }
}

// WithClusters serves Clusters.
func WithClusters(clusters Clusters) Option {
	return func(p *Provider) { p.clusters = clusters }
}

// WithMetrics registers the provider's own metrics, for example of calls to the cloud's API, in addition to this
// package's.
func WithMetrics(collectors ...prometheus.Collector) Option {
	return func(p *Provider) { p.metrics.own = append(p.metrics.own, collectors...) }
}

// WithGatherers serves the metrics of other registries, for example a library's. If two registries have a metric
// of the same name, the first one's is served; this package's comes first.
func WithGatherers(gatherers ...prometheus.Gatherer) Option {
	return func(p *Provider) { p.metrics.others = append(p.metrics.others, gatherers...) }
}

// WithIntroductions runs a function before each response of Discovery.GetInfo: whenever a host connects or reconnects
// to this process.
func WithIntroductions(introduced func()) Option {
	return func(p *Provider) { p.introduced = introduced }
}

// WithGate runs a function before each method but GetStatus, within its call. If it returns an error, that is the
// response and the method is not called. For a provider that is not ready at once.
func WithGate(gate func(ctx context.Context, mutation bool) error) Option {
	return func(p *Provider) { p.gate = gate }
}

// WithLogger logs there instead of to slog's default logger. Secrets are redacted either way.
func WithLogger(log *slog.Logger) Option {
	return func(p *Provider) { p.log = log }
}

// WithProcessEpoch replaces the random process epoch, so that a test knows its value. At most 64 bytes, not empty.
func WithProcessEpoch(epoch string) Option {
	return func(p *Provider) { p.epoch = epoch }
}

// Name returns the provider's name.
func (p *Provider) Name() string { return p.name }

// ProcessEpoch returns the random value that identifies this run of the process: tokens are bound to it.
func (p *Provider) ProcessEpoch() string { return p.epoch }

// ServiceNames returns the fully qualified names of the served services.
func (p *Provider) ServiceNames() []string {
	names := []string{discoveryService, cloudProviderService}
	for _, service := range []struct {
		name   string
		served bool
	}{
		{instancesService, p.instances != nil},
		{loadBalancersService, p.loadBalancers != nil},
		{routesService, p.routes != nil},
		{volumesService, p.volumes != nil},
		{clustersService, p.clusters != nil},
	} {
		if service.served {
			names = append(names, service.name)
		}
	}
	return names
}

// SetServing sets whether the provider accepts work at all: the health of "" and of every service.
//
// A cloud that is down or rejects the credentials is a condition of GetStatus, not a reason to call this.
func (p *Provider) SetServing(serving bool) { p.life.setAll(serving) }

// SetServiceServing sets whether one service accepts work, by its fully qualified name. It returns false if the service
// is not served.
func (p *Provider) SetServiceServing(service string, serving bool) bool {
	return p.life.set(service, serving)
}

// Stop stops gracefully, like SIGTERM: health turns to NOT_SERVING, streams end, running mutations finish.
func (p *Provider) Stop() { p.life.beginStop() }

// OnStop runs a function when the provider begins to stop, for example to end background work.
func (p *Provider) OnStop(end func()) { context.AfterFunc(p.life.stop, end) }

// advertise adds the capabilities that the methods show.
func (p *Provider) advertise() {
	_, watches := p.instances.(InstanceWatcher)
	_, lists := p.instances.(InstanceLister)
	_, addsKeys := p.instances.(SSHKeyAdder)
	seen := slices.Clone(p.capabilities.GetCapabilities())
	mutates := addsKeys || p.loadBalancers != nil || p.routes != nil
	for _, one := range []struct {
		capability pb.Capability
		there      bool
	}{
		{pb.Capability_CAPABILITY_INSTANCES_WATCH, watches},
		{pb.Capability_CAPABILITY_INSTANCES_LIST, lists},
		{pb.Capability_CAPABILITY_SSH_KEYS, addsKeys},
		{pb.Capability_CAPABILITY_BACKEND_SETS_BY_DIGEST, p.loadBalancers != nil},
		{pb.Capability_CAPABILITY_LEADERSHIP, !p.leaderless && (mutates || p.whileLeading != nil)},
	} {
		if one.there && !slices.Contains(seen, one.capability) {
			seen = append(seen, one.capability)
		}
	}
	p.capabilities.Capabilities = seen
}
