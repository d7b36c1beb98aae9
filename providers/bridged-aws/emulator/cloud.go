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

// Launch runs instances in a zone, with this name and of this type; without a name and t3.medium, where these are empty.
func (c *Cloud) Launch(ctx context.Context, network Network, zone string, count int32, name, kind string) ([]Instance, error) {
	subnet, known := network.Subnets[zone]
	if !known {
		return nil, fmt.Errorf("zone %q has no subnet; use one of %v", zone, Zones)
	}
	run, err := c.run(ctx, network, &subnet, count, func(input *ec2.RunInstancesInput) {
		if name != "" {
			tags := &input.TagSpecifications[0].Tags
			*tags = append(*tags, types.Tag{Key: aws.String("Name"), Value: &name})
		}
		if kind != "" {
			input.InstanceType = types.InstanceType(kind)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("cannot run instances in zone %s: %w", zone, err)
	}
	launched := []Instance{}
	for _, instance := range run {
		launched = append(launched, instanceOf(instance))
	}
	return launched, nil
}

// run runs t3.medium instances of the cluster, of which change may change anything.
func (c *Cloud) run(ctx context.Context, network Network, subnet *string, count int32, change func(*ec2.RunInstancesInput)) ([]types.Instance, error) {
	input := &ec2.RunInstancesInput{
		ImageId: aws.String("ami-12345678"), MinCount: &count, MaxCount: &count, InstanceType: types.InstanceTypeT3Medium,
		SubnetId: subnet, SecurityGroupIds: []string{network.SecurityGroup}, TagSpecifications: tagged(types.ResourceTypeInstance),
	}
	if change != nil {
		change(input)
	}
	run, err := c.ec2.RunInstances(ctx, input)
	if err != nil {
		return nil, err
	}
	return run.Instances, nil
}

// Named returns the instances with a name.
func (c *Cloud) Named(ctx context.Context, name string) ([]Instance, error) {
	pages := ec2.NewDescribeInstancesPaginator(c.ec2, &ec2.DescribeInstancesInput{
		Filters: []types.Filter{{Name: aws.String("tag:Name"), Values: []string{name}}},
	})
	named := []Instance{}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, group := range page.Reservations {
			for _, instance := range group.Instances {
				named = append(named, instanceOf(instance))
			}
		}
	}
	return named, nil
}

// Instance returns an instance, which may be terminated.
func (c *Cloud) Instance(ctx context.Context, id string) (Instance, error) {
	found, err := c.find(ctx, id)
	if err != nil {
		return Instance{}, err
	}
	return instanceOf(found), nil
}

func (c *Cloud) find(ctx context.Context, id string) (types.Instance, error) {
	found, err := c.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		return types.Instance{}, err
	}
	return found.Reservations[0].Instances[0], nil
}

// Hide lets EC2 not know an instance that exists, as it may for a while, until Show.
func (c *Cloud) Hide(ctx context.Context, id string) error {
	_, err := c.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: hidden})
	return err
}

// Show ends Hide.
func (c *Cloud) Show(ctx context.Context, id string) error {
	_, err := c.ec2.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{id}, Tags: hidden})
	return err
}

var hidden = []types.Tag{{Key: aws.String("emulator:hidden"), Value: aws.String("")}}

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

// Check lets an instance drop what is not for itself, as instances do before anybody changes that.
func (c *Cloud) Check(ctx context.Context, id string) error {
	on := &types.AttributeBooleanValue{Value: aws.Bool(true)}
	_, err := c.ec2.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{InstanceId: &id, SourceDestCheck: on})
	return err
}

// Terminate terminates an instance.
func (c *Cloud) Terminate(ctx context.Context, id string) error {
	_, err := c.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
	return err
}
