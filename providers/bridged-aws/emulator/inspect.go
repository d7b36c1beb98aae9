package emulator

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
)

// Built is a balancer, as the conformance suite compares it with what a Service asked for.
type Built struct {
	Ports   []BuiltPort `json:"ports"`
	Targets []string    `json:"targets"`
	// SourceRanges are the clients that the nodes' security groups let in. Without nodes there is nothing to restrict.
	SourceRanges []string   `json:"source_ranges,omitempty"`
	Families     []string   `json:"families"`
	HealthCheck  *BuiltPort `json:"health_check,omitempty"`
	// ClientIPAffinity is what each target group has; one that has none spreads a client's connections.
	ClientIPAffinity bool `json:"client_ip_affinity,omitempty"`
	spreads          bool
}

// BuiltPort is an open port, or that of health checks.
type BuiltPort struct {
	Protocol string `json:"protocol,omitempty"`
	Port     int    `json:"port"`
	NodePort int    `json:"node_port,omitempty"`
}

// Inspect returns the balancers with this name, of which there is one of either kind at most.
func (c *Cloud) Inspect(ctx context.Context, name string) ([]Built, error) {
	all := []Built{}
	found, err := c.named(ctx, name)
	if err != nil {
		return all, err
	}
	if found == nil {
		return c.inspectClassic(ctx, name)
	}
	one := Built{Ports: []BuiltPort{}, Targets: []string{}, Families: []string{"IPv4"}}
	if found.IpAddressType == elbv2types.IpAddressTypeDualstack {
		one.Families = append(one.Families, "IPv6")
	}
	listeners, err := c.elbv2.DescribeListeners(ctx, &elbv2.DescribeListenersInput{LoadBalancerArn: found.LoadBalancerArn})
	if err != nil {
		return nil, err
	}
	for _, listener := range listeners.Listeners {
		if err := c.inspectListener(ctx, listener, &one); err != nil {
			return nil, err
		}
	}
	one.ClientIPAffinity = len(one.Ports) > 0 && !one.spreads
	if len(one.Targets) > 0 {
		if one.SourceRanges, err = c.clients(ctx, one.Ports); err != nil {
			return nil, err
		}
	}
	return append(all, one), nil
}

func (c *Cloud) inspectClassic(ctx context.Context, name string) ([]Built, error) {
	found, err := c.classicNamed(ctx, name)
	if err != nil || found == nil {
		return []Built{}, err
	}
	one := Built{Ports: []BuiltPort{}, Targets: []string{}, Families: []string{"IPv4"}}
	for _, listener := range found.ListenerDescriptions {
		one.Ports = append(one.Ports, BuiltPort{"TCP", int(listener.Listener.LoadBalancerPort), int(aws.ToInt32(listener.Listener.InstancePort))})
	}
	for _, instance := range found.Instances {
		described, err := c.find(ctx, aws.ToString(instance.InstanceId))
		if err != nil {
			return nil, err
		}
		one.Targets = append(one.Targets, instanceOf(described).ProviderID())
	}
	// Protocol, port and perhaps a path.
	target := strings.FieldsFunc(aws.ToString(found.HealthCheck.Target), func(char rune) bool { return char == ':' || char == '/' })
	check, err := strconv.Atoi(target[1])
	if err != nil {
		return nil, err
	}
	one.HealthCheck = &BuiltPort{Port: check}
	groups, err := c.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: found.SecurityGroups})
	if err != nil {
		return nil, err
	}
	for _, rule := range groups.SecurityGroups[0].IpPermissions {
		for _, from := range rule.IpRanges {
			if aws.ToString(rule.IpProtocol) == "tcp" && !slices.Contains(one.SourceRanges, aws.ToString(from.CidrIp)) {
				one.SourceRanges = append(one.SourceRanges, aws.ToString(from.CidrIp))
			}
		}
	}
	return []Built{one}, nil
}

// classicNamed returns the classic balancer with this name, or nil.
func (c *Cloud) classicNamed(ctx context.Context, name string) (*elbtypes.LoadBalancerDescription, error) {
	all, err := c.allClassic(ctx)
	for _, one := range all {
		if aws.ToString(one.LoadBalancerName) == name {
			return &one, err
		}
	}
	return nil, err
}

func (c *Cloud) inspectListener(ctx context.Context, listener elbv2types.Listener, one *Built) error {
	arn := listener.DefaultActions[0].TargetGroupArn
	groups, err := c.elbv2.DescribeTargetGroups(ctx, &elbv2.DescribeTargetGroupsInput{TargetGroupArns: []string{*arn}})
	if err != nil {
		return err
	}
	group := groups.TargetGroups[0]
	for _, protocol := range strings.Split(string(listener.Protocol), "_") {
		one.Ports = append(one.Ports, BuiltPort{protocol, int(aws.ToInt32(listener.Port)), int(aws.ToInt32(group.Port))})
	}
	check := int(aws.ToInt32(group.Port))
	if port, err := strconv.Atoi(aws.ToString(group.HealthCheckPort)); err == nil {
		check = port
	}
	one.HealthCheck = &BuiltPort{Port: check}
	attributes, err := c.elbv2.DescribeTargetGroupAttributes(ctx, &elbv2.DescribeTargetGroupAttributesInput{TargetGroupArn: arn})
	if err != nil {
		return err
	}
	sticky := func(one elbv2types.TargetGroupAttribute) bool {
		return aws.ToString(one.Key) == "stickiness.enabled" && aws.ToString(one.Value) == "true"
	}
	one.spreads = one.spreads || !slices.ContainsFunc(attributes.Attributes, sticky)
	ids, err := c.targets(ctx, arn)
	if err != nil || len(ids) == 0 {
		return err
	}
	described, err := c.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: ids})
	if err != nil {
		return err
	}
	for _, reservation := range described.Reservations {
		for _, instance := range reservation.Instances {
			id := instanceOf(instance).ProviderID()
			if !slices.Contains(one.Targets, id) {
				one.Targets = append(one.Targets, id)
			}
		}
	}
	return nil
}

// clients returns the ranges of the rules that let clients in on these node ports.
func (c *Cloud) clients(ctx context.Context, ports []BuiltPort) ([]string, error) {
	groups, err := c.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{})
	if err != nil {
		return nil, err
	}
	ranges := []string{}
	for _, group := range groups.SecurityGroups {
		for _, rule := range group.IpPermissions {
			isOpen := slices.ContainsFunc(ports, func(port BuiltPort) bool { return port.NodePort == int(aws.ToInt32(rule.FromPort)) })
			for _, from := range rule.IpRanges {
				isClients := strings.HasPrefix(aws.ToString(from.Description), "kubernetes.io/rule/nlb/client=")
				if isOpen && isClients && !slices.Contains(ranges, aws.ToString(from.CidrIp)) {
					ranges = append(ranges, aws.ToString(from.CidrIp))
				}
			}
		}
	}
	return ranges, nil
}

// named returns the network balancer with this name, or nil.
func (c *Cloud) named(ctx context.Context, name string) (*elbv2types.LoadBalancer, error) {
	found, err := c.elbv2.DescribeLoadBalancers(ctx, &elbv2.DescribeLoadBalancersInput{Names: []string{name}})
	if none := (*elbv2types.LoadBalancerNotFoundException)(nil); errors.As(err, &none) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &found.LoadBalancers[0], nil
}

// MakeLegacy makes the network balancer of a Service, or a classic one, as the published provider begins it.
func (c *Cloud) MakeLegacy(ctx context.Context, network Network, name, service string, classic bool) error {
	if classic {
		_, err := c.elb.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{
			LoadBalancerName: &name, SecurityGroups: []string{network.SecurityGroup}, Subnets: []string{network.Subnets[Zones[0]]},
			Listeners: []elbtypes.Listener{{Protocol: aws.String("tcp"), LoadBalancerPort: 80, InstancePort: aws.Int32(30080)}},
			Tags: []elbtypes.Tag{
				{Key: aws.String("kubernetes.io/cluster/" + ClusterID), Value: aws.String("owned")},
				{Key: aws.String("kubernetes.io/service-name"), Value: &service},
			},
		})
		return err
	}
	mappings := []elbv2types.SubnetMapping{}
	for _, zone := range Zones {
		mappings = append(mappings, elbv2types.SubnetMapping{SubnetId: aws.String(network.Subnets[zone])})
	}
	_, err := c.elbv2.CreateLoadBalancer(ctx, &elbv2.CreateLoadBalancerInput{
		Name: &name, Type: elbv2types.LoadBalancerTypeEnumNetwork, SubnetMappings: mappings,
		Tags: []elbv2types.Tag{
			{Key: aws.String("kubernetes.io/cluster/" + ClusterID), Value: aws.String("owned")},
			{Key: aws.String("kubernetes.io/service-name"), Value: &service},
		},
	})
	return err
}

// Unmake deletes what there is of the balancer with this name. What was begun and what is gone is no error.
func (c *Cloud) Unmake(ctx context.Context, name string) error {
	found, err := c.named(ctx, name)
	if err != nil {
		return err
	}
	if found != nil {
		if _, err := c.elbv2.DeleteLoadBalancer(ctx, &elbv2.DeleteLoadBalancerInput{LoadBalancerArn: found.LoadBalancerArn}); err != nil {
			return err
		}
	}
	if _, err := c.elb.DeleteLoadBalancer(ctx, &elb.DeleteLoadBalancerInput{LoadBalancerName: &name}); err != nil {
		return err
	}
	groups, err := c.elbv2.DescribeTargetGroups(ctx, &elbv2.DescribeTargetGroupsInput{})
	if err != nil {
		return err
	}
	for _, group := range groups.TargetGroups {
		if len(group.LoadBalancerArns) == 0 {
			if _, err := c.elbv2.DeleteTargetGroup(ctx, &elbv2.DeleteTargetGroupInput{TargetGroupArn: group.TargetGroupArn}); err != nil {
				return err
			}
		}
	}
	security, err := c.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{})
	if err != nil {
		return err
	}
	for _, group := range security.SecurityGroups {
		for _, rule := range group.IpPermissions {
			rule.IpRanges = slices.DeleteFunc(rule.IpRanges, func(from ec2types.IpRange) bool {
				return !strings.HasSuffix(aws.ToString(from.Description), "="+name)
			})
			if len(rule.IpRanges) == 0 {
				continue
			}
			_, err := c.ec2.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{
				GroupId: group.GroupId, IpPermissions: []ec2types.IpPermission{rule},
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
