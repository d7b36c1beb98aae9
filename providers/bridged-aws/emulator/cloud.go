package emulator

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
)

// Cloud is the emulator as its user sees it.
type Cloud struct {
	ec2   *ec2.Client
	elb   *elb.Client
	elbv2 *elbv2.Client
}

// At answers the cloud at a URL; nothing is asked yet.
func At(url string) *Cloud {
	key := credentials.NewStaticCredentialsProvider(Environment["AWS_ACCESS_KEY_ID"], Environment["AWS_SECRET_ACCESS_KEY"], "")
	return &Cloud{
		ec2:   ec2.New(ec2.Options{Region: Region, BaseEndpoint: &url, Credentials: key}),
		elb:   elb.New(elb.Options{Region: Region, BaseEndpoint: &url, Credentials: key}),
		elbv2: elbv2.New(elbv2.Options{Region: Region, BaseEndpoint: &url, Credentials: key}),
	}
}

// Instance is a machine.
type Instance struct {
	ID string `json:"id"`
	// Node is the name that its kubelet registers: the private DNS name.
	Node    string `json:"node"`
	Zone    string `json:"zone"`
	Address string `json:"address"`
	State   string `json:"state"`
}

// ProviderID is how the provider names the machine.
func (i Instance) ProviderID() string { return fmt.Sprintf("aws:///%s/%s", i.Zone, i.ID) }

func instanceOf(found types.Instance) Instance {
	return Instance{
		ID: aws.ToString(found.InstanceId), Node: aws.ToString(found.PrivateDnsName), State: string(found.State.Name),
		Zone: aws.ToString(found.Placement.AvailabilityZone), Address: aws.ToString(found.PrivateIpAddress),
	}
}

// Launch runs a machine of type t3.medium in a zone.
func (c *Cloud) Launch(ctx context.Context, network Network, zone string) (Instance, error) {
	subnet, known := network.Subnets[zone]
	if !known {
		return Instance{}, fmt.Errorf("there is no subnet in the zone %q; use one of %v", zone, Zones)
	}
	run, err := c.ec2.RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: aws.String("ami-12345678"), MinCount: aws.Int32(1), MaxCount: aws.Int32(1), InstanceType: types.InstanceTypeT3Medium,
		SubnetId: &subnet, SecurityGroupIds: []string{network.SecurityGroup}, TagSpecifications: tagged(types.ResourceTypeInstance),
	})
	if err != nil {
		return Instance{}, fmt.Errorf("cannot run a machine: %w", err)
	}
	return c.Instance(ctx, aws.ToString(run.Instances[0].InstanceId))
}

// Instance answers a machine, which may have been terminated.
func (c *Cloud) Instance(ctx context.Context, id string) (Instance, error) {
	found, err := c.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		return Instance{}, err
	}
	return instanceOf(found.Reservations[0].Instances[0]), nil
}

// Stop stops a machine; it can be started again.
func (c *Cloud) Stop(ctx context.Context, id string) error {
	_, err := c.ec2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{id}})
	return err
}

// Start starts a machine that was stopped.
func (c *Cloud) Start(ctx context.Context, id string) error {
	_, err := c.ec2.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{id}})
	return err
}

// Terminate ends a machine.
func (c *Cloud) Terminate(ctx context.Context, id string) error {
	_, err := c.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
	return err
}
