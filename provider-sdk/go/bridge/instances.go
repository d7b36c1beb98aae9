package bridge

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// notReadyFor is when to retry an instance that cannot be described yet.
const notReadyFor = 5 * time.Second

// lookup returns the interface to use: InstancesV2, or else Instances with Zones; nil if there is neither.
func (b *bridge) lookup() cloudprovider.InstancesV2 {
	if newer, supported := b.cloud.InstancesV2(); supported && newer != nil {
		return newer
	}
	if older, supported := b.cloud.Instances(); supported && older != nil {
		zones, supported := b.cloud.Zones()
		if !supported {
			zones = nil
		}
		return &legacy{name: b.cloud.ProviderName(), instances: older, zones: zones}
	}
	return nil
}

// instances serves Instances.
type instances struct{ *bridge }

func (i *instances) BatchGetInstances(ctx context.Context, request *pb.BatchGetInstancesRequest) (*pb.BatchGetInstancesResponse, error) {
	refs := make([]*pb.NodeRef, len(request.GetQueries()))
	for at, query := range request.GetQueries() {
		refs[at] = query.GetNode()
	}
	nodes := map[string]*v1.Node{}
	for at, node := range i.mirrorOf(request.GetCluster()).nodes(ctx, i.view.wants.GetIdentity(), refs...) {
		nodes[request.GetQueries()[at].GetKey()] = node
	}
	ask := func(ctx context.Context, query *pb.InstanceQuery) *pb.InstanceResult {
		key, node := query.GetKey(), nodes[query.GetKey()]
		var result *pb.InstanceResult
		err := guarded(func() (err error) {
			result, err = i.ask(ctx, query, node.DeepCopy(), request.GetView())
			return err
		})
		if err != nil {
			return sdk.Unknown(key, i.mapped(of(err, node), node.Name))
		}
		return result
	}
	// What was never asked says nothing of the cloud.
	unasked := sync.Map{}
	late := func(query *pb.InstanceQuery, begun bool) *pb.InstanceResult {
		if !begun {
			unasked.Store(query.GetKey(), nil)
		}
		return sdk.Unknown(query.GetKey(), tooLate())
	}
	name := func(query *pb.InstanceQuery) string {
		return "node " + query.GetNode().GetName() + " " + query.GetNode().GetProviderId()
	}
	results := eachInTime(ctx, i.bridge, request.GetQueries(), name, ask, late)
	asked := slices.DeleteFunc(slices.Clone(results), func(one *pb.InstanceResult) bool {
		_, never := unasked.Load(one.GetKey())
		return never
	})
	i.reachable.saw(asked, nodes)
	return &pb.BatchGetInstancesResponse{Results: results}, nil
}

// ask makes exactly the calls that a cloud controller manager makes for the same purpose: only the description to
// initialise a node and to keep it up to date; existence and shutdown before it taints or deletes one.
func (i *instances) ask(ctx context.Context, query *pb.InstanceQuery, node *v1.Node, view pb.InstanceView) (*pb.InstanceResult, error) {
	key, id := query.GetKey(), node.Spec.ProviderID
	switch {
	case id == "":
		return i.askByName(ctx, query, node, view)
	case !i.owns(id):
		return sdk.NotOwned(key), nil
	case view == pb.InstanceView_INSTANCE_VIEW_METADATA:
		return i.described(ctx, key, node, pb.InstanceState_INSTANCE_STATE_EXISTS)
	}
	exists, err := i.parts.lookup.InstanceExists(ctx, node)
	if err != nil {
		return nil, err
	}
	if !exists {
		return sdk.Absent(query), nil
	}
	state, err := i.state(ctx, node)
	if err != nil {
		return nil, err
	}
	if view == pb.InstanceView_INSTANCE_VIEW_EXISTENCE {
		return sdk.Found(key, state, &pb.Instance{ProviderId: id}), nil
	}
	result, err := i.described(ctx, key, node, state)
	if err != nil {
		// The instance is known to exist all the same.
		result = sdk.Found(key, state, nil)
		result.Error = fault.Item(i.mapped(of(err, node), node.Name))
	}
	return result, nil
}

// askByName queries a node without a provider ID. Some providers refuse every such query except for the description,
// which returns the ID.
func (i *instances) askByName(ctx context.Context, query *pb.InstanceQuery, node *v1.Node, view pb.InstanceView) (*pb.InstanceResult, error) {
	result, err := i.described(ctx, query.GetKey(), node, pb.InstanceState_INSTANCE_STATE_EXISTS)
	if errors.Is(err, cloudprovider.InstanceNotFound) {
		return sdk.Absent(query), nil
	}
	if err != nil || result.GetInstance() == nil || view == pb.InstanceView_INSTANCE_VIEW_METADATA {
		return result, err
	}
	node.Spec.ProviderID = result.GetInstance().GetProviderId()
	result.State, err = i.state(ctx, node)
	return result, err
}

// described returns an instance with its description; an instance that cannot be described yet exists.
func (i *instances) described(ctx context.Context, key string, node *v1.Node, state pb.InstanceState) (*pb.InstanceResult, error) {
	var found *cloudprovider.InstanceMetadata
	err := guarded(func() (err error) {
		found, err = i.parts.lookup.InstanceMetadata(ctx, node)
		return err
	})
	if err != nil {
		return nil, err
	}
	result := sdk.Found(key, state, nil)
	if result.Instance, err = i.instanceOf(found, node); err != nil {
		result.Instance, result.Error = nil, fault.Item(i.mapped(err, node.Name))
	}
	return result, nil
}

func (i *instances) state(ctx context.Context, node *v1.Node) (pb.InstanceState, error) {
	shutdown, err := i.parts.lookup.InstanceShutdown(ctx, node)
	switch {
	case errors.Is(err, cloudprovider.NotImplemented):
		return pb.InstanceState_INSTANCE_STATE_RUNNING, nil
	case err != nil:
		return pb.InstanceState_INSTANCE_STATE_UNSPECIFIED, err
	case shutdown:
		return pb.InstanceState_INSTANCE_STATE_STOPPED, nil
	}
	return pb.InstanceState_INSTANCE_STATE_RUNNING, nil
}

func (i *instances) instanceOf(found *cloudprovider.InstanceMetadata, node *v1.Node) (*pb.Instance, error) {
	if found == nil {
		return nil, fault.MetadataNotReady(notReadyFor)
	}
	id, known := found.ProviderID, node.Spec.ProviderID
	switch {
	case known != "":
		id = known
	case id == "":
		return nil, fault.MetadataNotReady(notReadyFor)
	case !i.owns(id):
		return nil, fault.New(pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR,
			"the cloud provider returned a provider ID without its own prefix", fault.WithMetadata("provider_id", id))
	}
	return &pb.Instance{
		ProviderId: id, InstanceType: found.InstanceType, Addresses: addressesOf(found.NodeAddresses),
		Zone: found.Zone, Region: found.Region, Labels: labelsOf(found.AdditionalLabels, node),
	}, nil
}

// ownedLabels is the annotation in which the host records the labels that it has set for a provider: KEY=VALUE,...
const ownedLabels = "cloudprovider.ccm/owned-labels"

// labelsOf returns the provider's labels with those that the node has from it already: aws leaves out the ones that the node has,
// since upstream's controllers never remove a label, and the host would.
func labelsOf(told map[string]string, node *v1.Node) map[string]string {
	out := maps.Clone(told)
	for entry := range strings.SplitSeq(node.Annotations[ownedLabels], ",") {
		key, value, owned := strings.Cut(entry, "=")
		_, again := told[key]
		if has, there := node.Labels[key]; !owned || again || !there || has != value || isKubernetes(key) {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out
}

// isKubernetes reports whether a label is one of Kubernetes' own, which are fields of an instance.
func isKubernetes(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	for _, own := range []string{"kubernetes.io", "k8s.io"} {
		if domain == own || strings.HasSuffix(domain, "."+own) {
			return true
		}
	}
	return false
}
