package emulator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
)

// Region is the region of everything in the emulator.
const Region = "us-east-1"

// ClusterID is the cluster that all resources are tagged with.
const ClusterID = "emulated"

// Zones are the availability zones with a subnet.
var Zones = []string{Region + "a", Region + "b"}

// Network is what a cluster's administrator creates before the first node: a VPC with a public subnet per zone, one route table
// for all of them, and the nodes' security group, tagged so that the provider finds them.
type Network struct {
	VPC           string            `json:"vpc"`
	Subnets       map[string]string `json:"subnets"`
	RouteTable    string            `json:"route_table"`
	SecurityGroup string            `json:"security_group"`
}

// MakeNetwork creates a cluster's network.
func (c *Cloud) MakeNetwork(ctx context.Context) (Network, error) {
	network := Network{Subnets: map[string]string{}}
	steps := []func(context.Context, *Network) error{c.makeVPC, c.makeRouteTable, c.makeSubnets, c.makeSecurityGroup}
	for _, step := range steps {
		if err := step(ctx, &network); err != nil {
			return Network{}, fmt.Errorf("cannot make the network of the emulated cluster: %w", err)
		}
	}
	return network, nil
}

func (c *Cloud) makeVPC(ctx context.Context, network *Network) error {
	made, err := c.ec2.CreateVpc(ctx, &ec2.CreateVpcInput{
		CidrBlock: aws.String("10.0.0.0/16"), AmazonProvidedIpv6CidrBlock: aws.Bool(true),
		TagSpecifications: tagged(types.ResourceTypeVpc),
	})
	if err != nil {
		return err
	}
	network.VPC = *made.Vpc.VpcId
	// Nodes are named by their private DNS names, which a VPC assigns only with this attribute.
	_, err = c.ec2.ModifyVpcAttribute(ctx, &ec2.ModifyVpcAttributeInput{
		VpcId: &network.VPC, EnableDnsHostnames: &types.AttributeBooleanValue{Value: aws.Bool(true)},
	})
	return err
}

func (c *Cloud) makeRouteTable(ctx context.Context, network *Network) error {
	table, err := c.ec2.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{
		VpcId: &network.VPC, TagSpecifications: tagged(types.ResourceTypeRouteTable),
	})
	if err != nil {
		return err
	}
	network.RouteTable = *table.RouteTable.RouteTableId
	gateway, err := c.ec2.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{})
	if err != nil {
		return err
	}
	id := gateway.InternetGateway.InternetGatewayId
	_, attached := c.ec2.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{InternetGatewayId: id, VpcId: &network.VPC})
	_, routed := c.ec2.CreateRoute(ctx, &ec2.CreateRouteInput{
		RouteTableId: &network.RouteTable, DestinationCidrBlock: aws.String("0.0.0.0/0"), GatewayId: id,
	})
	return errors.Join(unlessDone(attached, "Resource.AlreadyAssociated"), unlessDone(routed, "RouteAlreadyExists"))
}

// unlessDone is no error if the code says that the call has happened before: the SDK repeats a call whose answer it did not get.
func unlessDone(err error, code string) error {
	var api smithy.APIError
	if errors.As(err, &api) && api.ErrorCode() == code {
		return nil
	}
	return err
}

func (c *Cloud) makeSubnets(ctx context.Context, network *Network) error {
	found, err := c.ec2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{network.VPC}})
	if err != nil {
		return err
	}
	// The VPC's /56 has a /64 for each subnet.
	v6 := strings.TrimSuffix(aws.ToString(found.Vpcs[0].Ipv6CidrBlockAssociationSet[0].Ipv6CidrBlock), "00::/56")
	for i, zone := range Zones {
		made, err := c.ec2.CreateSubnet(ctx, &ec2.CreateSubnetInput{
			VpcId: &network.VPC, CidrBlock: aws.String(fmt.Sprintf("10.0.%d.0/18", 64*i)), AvailabilityZone: &zone,
			Ipv6CidrBlock:     aws.String(fmt.Sprintf("%s%02d::/64", v6, i)),
			TagSpecifications: tagged(types.ResourceTypeSubnet, types.Tag{Key: aws.String("kubernetes.io/role/elb"), Value: aws.String("1")}),
		})
		if err != nil {
			return err
		}
		network.Subnets[zone] = *made.Subnet.SubnetId
		_, err = c.ec2.AssociateRouteTable(ctx, &ec2.AssociateRouteTableInput{
			RouteTableId: &network.RouteTable, SubnetId: made.Subnet.SubnetId,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Cloud) makeSecurityGroup(ctx context.Context, network *Network) error {
	name := aws.String("nodes")
	_, err := c.ec2.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
		GroupName: name, Description: name, VpcId: &network.VPC, TagSpecifications: tagged(types.ResourceTypeSecurityGroup),
	})
	if err := unlessDone(err, "InvalidGroup.Duplicate"); err != nil {
		return err
	}
	found, err := c.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{
		Filters: []types.Filter{{Name: aws.String("group-name"), Values: []string{*name}}},
	})
	if err == nil {
		network.SecurityGroup = *found.SecurityGroups[0].GroupId
	}
	return err
}

// MakeGroup creates a security group that is no cluster's, as users do for their balancers, and returns its ID.
func (c *Cloud) MakeGroup(ctx context.Context, network Network, name string) (string, error) {
	made, err := c.ec2.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{GroupName: &name, Description: &name, VpcId: &network.VPC})
	if err != nil {
		return "", err
	}
	return *made.GroupId, nil
}

// PutIn gives an instance these security groups alone, which commas separate.
func (c *Cloud) PutIn(ctx context.Context, instance, groups string) error {
	_, err := c.ec2.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{InstanceId: &instance, Groups: strings.Split(groups, ",")})
	return err
}

// MakeAddress allocates an elastic address, and returns the allocation's ID.
func (c *Cloud) MakeAddress(ctx context.Context) (string, error) {
	made, err := c.ec2.AllocateAddress(ctx, &ec2.AllocateAddressInput{})
	if err != nil {
		return "", err
	}
	return *made.AllocationId, nil
}

// LetIn lets everything from a security group through to the nodes.
func (c *Cloud) LetIn(ctx context.Context, network Network, group string) error {
	_, err := c.ec2.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{
		GroupId: &network.SecurityGroup,
		IpPermissions: []types.IpPermission{
			{IpProtocol: aws.String("-1"), UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: &group}}},
		},
	})
	return err
}

// tagged returns the tags that mark a resource as owned by the cluster.
func tagged(kind types.ResourceType, more ...types.Tag) []types.TagSpecification {
	own := types.Tag{Key: aws.String("kubernetes.io/cluster/" + ClusterID), Value: aws.String("owned")}
	return []types.TagSpecification{{ResourceType: kind, Tags: append(more, own)}}
}

// Config returns a cloud config with which the provider finds the network and calls only the emulator at url.
//
// With VPC, subnet and cluster ID the provider does not ask the instance metadata service for its identity; with the region it does
// not ask for its location.
func (n Network) Config(url string) string {
	var config strings.Builder
	fmt.Fprintf(&config, "[Global]\nRegion = %s\nZone = %s\nVPC = %s\nSubnetID = %s\nRouteTableID = %s\nKubernetesClusterID = %s\n",
		Region, Zones[0], n.VPC, n.Subnets[Zones[0]], n.RouteTable, ClusterID)
	for i, service := range []struct{ id, signs string }{
		{"EC2", "ec2"}, {"Elastic Load Balancing", "elasticloadbalancing"},
		{"Elastic Load Balancing v2", "elasticloadbalancing"}, {"KMS", "kms"}, {"ec2imds", "ec2imds"},
	} {
		fmt.Fprintf(&config, "\n[ServiceOverride \"%d\"]\nService = %s\nRegion = %s\nURL = %s\nSigningRegion = %[3]s\nSigningName = %[5]s\n",
			i+1, service.id, Region, url, service.signs)
	}
	return config.String()
}

// Environment is the rest of what the provider's process needs: credentials, which the emulator never checks, no instance
// metadata, and none of the user's own AWS configuration.
var Environment = map[string]string{
	"AWS_ACCESS_KEY_ID": "emulated", "AWS_SECRET_ACCESS_KEY": "emulated-secret", "AWS_EC2_METADATA_DISABLED": "true",
	"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
}
