package emulator

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Shape is a kind of instance that a provider must describe right.
type Shape struct {
	Name string `json:"name"`
	Instance
}

// Shapes runs an instance of each shape.
func (c *Cloud) Shapes(ctx context.Context, network Network) ([]Shape, error) {
	subnet := func(zone int) *string { return aws.String(network.Subnets[Zones[zone]]) }
	card := func(index int32, zone int) types.InstanceNetworkInterfaceSpecification {
		return types.InstanceNetworkInterfaceSpecification{
			DeviceIndex: aws.Int32(index), SubnetId: subnet(zone), Groups: []string{network.SecurityGroup},
		}
	}
	cards := func(all ...types.InstanceNetworkInterfaceSpecification) func(*ec2.RunInstancesInput) {
		return func(in *ec2.RunInstancesInput) {
			in.SubnetId, in.SecurityGroupIds, in.NetworkInterfaces = nil, nil, all
		}
	}
	ofType := func(kind types.InstanceType) func(*ec2.RunInstancesInput) {
		return func(in *ec2.RunInstancesInput) { in.InstanceType = kind }
	}
	public := card(0, 0)
	public.AssociatePublicIpAddress = aws.Bool(true)
	shapes := []struct {
		name   string
		change func(*ec2.RunInstancesInput)
		then   func(context.Context, string) error
	}{
		{"plain", nil, nil},
		{"in another zone", func(in *ec2.RunInstancesInput) { in.SubnetId = subnet(1) }, nil},
		{"with a public address", cards(public), nil},
		{"with two addresses on one card", nil, c.addAddress},
		{"with two cards", cards(card(1, 0), card(0, 0)), nil},
		{"with an IPv6 address", func(in *ec2.RunInstancesInput) { in.Ipv6AddressCount = aws.Int32(1) }, nil},
		{"named by its ID", func(in *ec2.RunInstancesInput) {
			in.PrivateDnsNameOptions = &types.PrivateDnsNameOptionsRequest{HostnameType: types.HostnameTypeResourceName}
		}, nil},
		{"with a place in the network that its node needs", ofType(types.InstanceTypeTrn132xlarge), nil},
		{"with a place in the network that its node does not need", ofType(types.InstanceTypeG6eXlarge), nil},
		{"tagged for no cluster", func(in *ec2.RunInstancesInput) { in.TagSpecifications = nil }, nil},
		{"with the former tag of the cluster", func(in *ec2.RunInstancesInput) {
			in.TagSpecifications[0].Tags[0] = types.Tag{Key: aws.String("KubernetesCluster"), Value: aws.String(ClusterID)}
		}, nil},
		{"of another cluster", func(in *ec2.RunInstancesInput) {
			in.TagSpecifications[0].Tags[0].Key = aws.String("kubernetes.io/cluster/another")
		}, nil},
		{"stopped", nil, c.Stop},
		{"terminated", nil, c.Terminate},
	}
	made := []Shape{}
	for _, shape := range shapes {
		run, err := c.run(ctx, network, subnet(0), 1, shape.change)
		if err != nil {
			return nil, fmt.Errorf("cannot make an instance %s: %w", shape.name, err)
		}
		id := aws.ToString(run[0].InstanceId)
		if shape.then != nil {
			err = shape.then(ctx, id)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot make an instance %s: %w", shape.name, err)
		}
		found, err := c.Instance(ctx, id)
		if err != nil {
			return nil, err
		}
		made = append(made, Shape{shape.name, found})
	}
	return made, nil
}

func (c *Cloud) addAddress(ctx context.Context, id string) error {
	found, err := c.find(ctx, id)
	if err != nil {
		return err
	}
	_, err = c.ec2.AssignPrivateIpAddresses(ctx, &ec2.AssignPrivateIpAddressesInput{
		NetworkInterfaceId:             found.NetworkInterfaces[0].NetworkInterfaceId,
		SecondaryPrivateIpAddressCount: aws.Int32(1),
	})
	return err
}
