package bridge

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
)

// legacy queries the older interfaces in the order of the upstream controllers: by provider ID, then by name.
type legacy struct {
	name      string
	instances cloudprovider.Instances
	zones     cloudprovider.Zones
}

// id returns the provider ID of a node, built from the instance's ID if the node has none yet.
func (l *legacy) id(ctx context.Context, node *v1.Node) (string, error) {
	if node.Spec.ProviderID != "" {
		return node.Spec.ProviderID, nil
	}
	id, err := l.instances.InstanceID(ctx, types.NodeName(node.Name))
	if err != nil || id == "" {
		return "", err
	}
	return l.name + "://" + id, nil
}

func (l *legacy) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	id, err := l.id(ctx, node)
	if errors.Is(err, cloudprovider.InstanceNotFound) || (err == nil && id == "") {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return l.instances.InstanceExistsByProviderID(ctx, id)
}

func (l *legacy) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	id, err := l.id(ctx, node)
	if err != nil {
		return false, err
	}
	return l.instances.InstanceShutdownByProviderID(ctx, id)
}

// InstanceMetadata fails without the type and the zone only for a node without their labels: upstream asks for them once, and the
// addresses of other nodes must be told without them.
func (l *legacy) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	id, err := l.id(ctx, node)
	if err == nil && id == "" {
		err = cloudprovider.InstanceNotFound
	}
	if err != nil {
		return nil, err
	}
	found, name := &cloudprovider.InstanceMetadata{ProviderID: id}, types.NodeName(node.Name)
	if found.NodeAddresses, err = l.instances.NodeAddressesByProviderID(ctx, id); err != nil {
		if found.NodeAddresses, err = l.instances.NodeAddresses(ctx, name); err != nil {
			return nil, err
		}
	}
	if found.InstanceType, err = l.instances.InstanceTypeByProviderID(ctx, id); err != nil {
		if found.InstanceType, err = l.instances.InstanceType(ctx, name); err != nil && node.Labels[v1.LabelInstanceTypeStable] == "" {
			return nil, err
		}
	}
	if l.zones == nil {
		return found, nil
	}
	zone, err := l.zones.GetZoneByProviderID(ctx, id)
	if err != nil {
		if zone, err = l.zones.GetZoneByNodeName(ctx, name); err != nil && node.Labels[v1.LabelTopologyZone] == "" {
			return nil, err
		}
	}
	found.Zone, found.Region = zone.FailureDomain, zone.Region
	return found, nil
}
