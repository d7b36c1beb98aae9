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

// Cloud is a client of the emulated AWS.
type Cloud struct {
	ec2   *ec2.Client
	elb   *elb.Client
	elbv2 *elbv2.Client
}

// At returns a client of the cloud at url, without calling it.
func At(url string) *Cloud {
	key := credentials.NewStaticCredentialsProvider(Environment["AWS_ACCESS_KEY_ID"], Environment["AWS_SECRET_ACCESS_KEY"], "")
	return &Cloud{
		ec2:   ec2.New(ec2.Options{Region: Region, BaseEndpoint: &url, Credentials: key}),
		elb:   elb.New(elb.Options{Region: Region, BaseEndpoint: &url, Credentials: key}),
		elbv2: elbv2.New(elbv2.Options{Region: Region, BaseEndpoint: &url, Credentials: key}),
	}
}

// Instance is an EC2 instance.
type Instance struct {
	ID string `json:"id"`
	// Node is the node name that its kubelet registers: the private DNS name.
	Node    string `json:"node"`
	Zone    string `json:"zone"`
	Address string `json:"address"`
	State   string `json:"state"`
}

// ProviderID returns the instance's provider ID.
func (i Instance) ProviderID() string { return fmt.Sprintf("aws:///%s/%s", i.Zone, i.ID) }

func instanceOf(found types.Instance) Instance {
	return Instance{
		ID: aws.ToString(found.InstanceId), Node: aws.ToString(found.PrivateDnsName), State: string(found.State.Name),
		Zone: aws.ToString(found.Placement.AvailabilityZone), Address: aws.ToString(found.PrivateIpAddress),
	}
}

// Launch runs a t3.medium instance in a zone.
func (c *Cloud) Launch(ctx context.Context, network Network, zone string) (Instance, error) {
	subnet, known := network.Subnets[zone]
	if !known {
		return Instance{}, fmt.Errorf("zone %q has no subnet; use one of %v", zone, Zones)
	}
	run, err := c.ec2.RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: aws.String("ami-12345678"), MinCount: aws.Int32(1), MaxCount: aws.Int32(1), InstanceType: types.InstanceTypeT3Medium,
		SubnetId: &subnet, SecurityGroupIds: []string{network.SecurityGroup}, TagSpecifications: tagged(types.ResourceTypeInstance),
	})
	if err != nil {
		return Instance{}, fmt.Errorf("cannot run an instance in zone %s: %w", zone, err)
	}
	return c.Instance(ctx, aws.ToString(run.Instances[0].InstanceId))
}

// Instance returns an instance, which may be terminated.
func (c *Cloud) Instance(ctx context.Context, id string) (Instance, error) {
	found, err := c.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		return Instance{}, err
	}
	return instanceOf(found.Reservations[0].Instances[0]), nil
}

// Stop stops an instance, which Start can start again.
func (c *Cloud) Stop(ctx context.Context, id string) error {
	_, err := c.ec2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{id}})
	return err
}

// Start starts a stopped instance.
func (c *Cloud) Start(ctx context.Context, id string) error {
	_, err := c.ec2.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{id}})
	return err
}

// Terminate terminates an instance.
func (c *Cloud) Terminate(ctx context.Context, id string) error {
	_, err := c.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
	return err
}
