// Package bridge serves a provider that was written for cloudprovider.Interface (k8s.io/cloud-provider) as a sidecar.
//
// In: such a provider, unchanged. Out: an sdk.Provider. The Nodes and Services that it reads are made of what the host
// sends; batches are asked one by one, some at a time; its sentinel errors, RetryError, panics and half-built answers
// become what the contract has for them.
//
// What such an interface cannot say, the bridge does not invent. Only (false, nil) for a provider ID with the provider's own
// prefix is an authoritative ABSENT. Balancers are known from what was ensured in this process: after a restart of the
// sidecar the host ensures each once, as it does with an old controller. Resources are found by the provider's own names,
// not by the cluster's uid.
package bridge

import (
	"errors"
	"fmt"
	"strings"

	"cloudprovider.ccm/sdk"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	cloudprovider "k8s.io/cloud-provider"
)

const defaultConcurrency = 16

// Option says how a provider is bridged.
type Option func(*bridge)

type bridge struct {
	cloud         cloudprovider.Interface
	concurrency   int
	allowUntagged bool
	nodeAddresses bool
	prefixes      []string
	capabilities  *pb.GetCapabilitiesResponse
	options       []sdk.Option
	initialize    func() error
}

// WithConcurrency bounds the calls of the provider that one batch makes at once; 16 otherwise.
func WithConcurrency(calls int) Option {
	return func(b *bridge) { b.concurrency = max(calls, 1) }
}

// WithAllowUntaggedCloud serves a provider that has no cluster ID of its own (HasClusterID), as the flag
// --allow-untagged-cloud of a cloud controller manager does.
func WithAllowUntaggedCloud() Option {
	return func(b *bridge) { b.allowUntagged = true }
}

// WithRouteNodeAddresses says that the provider's routes hold addresses of nodes (Route.EnableNodeAddresses).
func WithRouteNodeAddresses() Option {
	return func(b *bridge) { b.nodeAddresses = true }
}

// WithProviderIDPrefixes replaces "NAME://" as the beginnings of provider IDs.
func WithProviderIDPrefixes(prefixes ...string) Option {
	return func(b *bridge) { b.prefixes = prefixes }
}

// WithCapabilities replaces limits, intervals, classes and wanted fields. The bridge wants all labels and annotations of
// Services and all labels of nodes unless told otherwise, since it cannot know what a provider reads.
func WithCapabilities(capabilities *pb.GetCapabilitiesResponse) Option {
	return func(b *bridge) { b.capabilities = capabilities }
}

// WithSDKOptions hands options on to sdk.New, for example a version, a logger or metrics.
func WithSDKOptions(options ...sdk.Option) Option {
	return func(b *bridge) { b.options = append(b.options, options...) }
}

// New bridges a provider, as far as it says that it supports its parts: InstancesV2, or Instances with Zones; LoadBalancer;
// Routes; Clusters.
func New(cloud cloudprovider.Interface, options ...Option) (*sdk.Provider, error) {
	if cloud == nil {
		return nil, errors.New("there is no cloud provider to bridge")
	}
	b := &bridge{cloud: cloud, concurrency: defaultConcurrency, prefixes: []string{cloud.ProviderName() + "://"}}
	for _, option := range options {
		option(b)
	}
	if !cloud.HasClusterID() && !b.allowUntagged {
		return nil, fmt.Errorf("the cloud provider %q has no cluster ID, so its resources could be taken for another cluster's; "+
			"configure one, or use WithAllowUntaggedCloud", cloud.ProviderName())
	}
	if b.initialize != nil {
		if err := guarded(b.initialize); err != nil {
			return nil, fmt.Errorf("the cloud provider %q cannot be initialized: %w", cloud.ProviderName(), err)
		}
	}
	told := []sdk.Option{sdk.WithProviderIDPrefix(b.prefixes...), sdk.WithCapabilities(b.advertised())}
	if lookup := b.lookup(); lookup != nil {
		told = append(told, sdk.WithInstances(&instances{b, lookup}))
	}
	if balancers, supported := cloud.LoadBalancer(); supported {
		told = append(told, sdk.WithLoadBalancers(newLoadBalancers(b, balancers)))
	}
	if routes, supported := cloud.Routes(); supported {
		told = append(told, sdk.WithRoutes(newRoutes(b, routes)))
	}
	if of, supported := cloud.Clusters(); supported {
		told = append(told, sdk.WithClusters(newClusters(of)))
	}
	return sdk.New(cloud.ProviderName(), append(told, b.options...)...)
}

func (b *bridge) advertised() *pb.GetCapabilitiesResponse {
	if b.capabilities != nil {
		return b.capabilities
	}
	node := &pb.NodeFields{
		SystemUuid: true, ProvidedNodeIps: true, Addresses: true, CreationTime: true, PodCidrs: true, Labels: []string{"*"},
	}
	answer := &pb.GetCapabilitiesResponse{Wants: &pb.Wants{
		Identity: node, Backend: node, RouteTarget: node,
		Service: &pb.ServiceFields{Labels: []string{"*"}, Annotations: []string{"*"}},
	}}
	if _, routes := b.cloud.Routes(); routes && b.nodeAddresses {
		answer.Capabilities = append(answer.Capabilities, pb.Capability_CAPABILITY_ROUTE_NODE_ADDRESSES)
	}
	return answer
}

// owns says whether a provider ID is one of this provider's.
func (b *bridge) owns(providerID string) bool {
	for _, prefix := range b.prefixes {
		if strings.HasPrefix(providerID, prefix) {
			return true
		}
	}
	return false
}

// clusterName answers the name under which the provider knows the cluster: that of the flag --cluster-name, whose default
// has always been "kubernetes".
func clusterName(cluster *pb.ClusterRef) string {
	if cluster.GetName() == "" {
		return "kubernetes"
	}
	return cluster.GetName()
}
