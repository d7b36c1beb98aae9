package bridge

import (
	"context"
	"errors"
	"time"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// notReadyFor is when to ask again for what cannot be described yet.
const notReadyFor = 5 * time.Second

// lookup is how a provider is asked about one machine: its newer or its older interface.
type lookup interface {
	exists(context.Context, *v1.Node) (bool, error)
	shutdown(context.Context, *v1.Node) (bool, error)
	describe(context.Context, *v1.Node) (*cloudprovider.InstanceMetadata, error)
}

// lookup answers the interface to use: InstancesV2, or else Instances with Zones; nil when there is neither.
func (b *bridge) lookup() lookup {
	if newer, supported := b.cloud.InstancesV2(); supported && newer != nil {
		return instancesV2{newer}
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

type instancesV2 struct{ cloudprovider.InstancesV2 }

func (i instancesV2) exists(ctx context.Context, node *v1.Node) (bool, error) {
	return i.InstanceExists(ctx, node)
}

func (i instancesV2) shutdown(ctx context.Context, node *v1.Node) (bool, error) {
	return i.InstanceShutdown(ctx, node)
}

func (i instancesV2) describe(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	return i.InstanceMetadata(ctx, node)
}

// instances serves Instances.
type instances struct {
	*bridge
	lookup lookup
}

func (i *instances) BatchGetInstances(ctx context.Context, request *pb.BatchGetInstancesRequest) (*pb.BatchGetInstancesResponse, error) {
	ask := func(ctx context.Context, query *pb.InstanceQuery) *pb.InstanceResult {
		var result *pb.InstanceResult
		err := guarded(func() (err error) {
			result, err = i.ask(ctx, query, request.GetView())
			return err
		})
		if err != nil {
			sdk.Logger(ctx).Warn("a node's instance is not known", "node", query.GetNode().GetName(), "error", err,
				"cause", errors.Unwrap(err))
			return sdk.Unknown(query.GetKey(), mapped(err, query.GetNode().GetName()))
		}
		return result
	}
	late := func(query *pb.InstanceQuery) *pb.InstanceResult { return sdk.Unknown(query.GetKey(), tooLate()) }
	name := func(query *pb.InstanceQuery) string {
		return "node " + query.GetNode().GetName() + " " + query.GetNode().GetProviderId()
	}
	refs := make([]*pb.NodeRef, len(request.GetQueries()))
	for at, query := range request.GetQueries() {
		refs[at] = query.GetNode()
	}
	i.mirror.nodes(ctx, refs...)
	results := eachInTime(ctx, i.bridge, request.GetQueries(), name, ask, late)
	i.reachable.saw(results)
	return &pb.BatchGetInstancesResponse{Results: results}, nil
}

func (i *instances) ask(ctx context.Context, query *pb.InstanceQuery, view pb.InstanceView) (*pb.InstanceResult, error) {
	key, node := query.GetKey(), nodeOf(query.GetNode())
	id := node.Spec.ProviderID
	if id != "" && !i.owns(id) {
		return sdk.NotOwned(key), nil
	}
	exists, err := i.lookup.exists(ctx, node)
	if err != nil {
		return nil, err
	}
	if !exists {
		result := sdk.Absent(key)
		// By its name alone a machine may be missed; only by its ID was it looked for where it must be.
		result.Authoritative = id != ""
		return result, nil
	}
	state, err := i.state(ctx, node)
	if err != nil {
		return nil, err
	}
	if view == pb.InstanceView_INSTANCE_VIEW_EXISTENCE && id != "" {
		return sdk.Found(key, state, &pb.Instance{ProviderId: id}), nil
	}
	described, err := i.describe(ctx, node)
	result := sdk.Found(key, state, described)
	if err != nil {
		result.Instance, result.Error = nil, fault.Item(mapped(err, node.Name))
	}
	return result, nil
}

func (i *instances) state(ctx context.Context, node *v1.Node) (pb.InstanceState, error) {
	shutdown, err := i.lookup.shutdown(ctx, node)
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

// describe asks for the description of a machine that is there; half-built ones are not handed on.
func (i *instances) describe(ctx context.Context, node *v1.Node) (described *pb.Instance, err error) {
	err = guarded(func() error {
		found, err := i.lookup.describe(ctx, node)
		if err != nil {
			return err
		}
		if found == nil {
			return fault.MetadataNotReady(notReadyFor)
		}
		described, err = i.instanceOf(found, node.Spec.ProviderID)
		return err
	})
	return described, err
}

func (i *instances) instanceOf(found *cloudprovider.InstanceMetadata, known string) (*pb.Instance, error) {
	id := found.ProviderID
	switch {
	case known != "":
		id = known
	case id == "":
		return nil, fault.MetadataNotReady(notReadyFor)
	case !i.owns(id):
		return nil, fault.New(pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR,
			"the cloud provider answered a provider ID without its own prefix", fault.WithMetadata("provider_id", id))
	}
	return &pb.Instance{
		ProviderId: id, InstanceType: found.InstanceType, Addresses: addressesOf(found.NodeAddresses),
		Zone: found.Zone, Region: found.Region, Labels: found.AdditionalLabels,
	}, nil
}
