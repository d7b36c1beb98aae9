package emulator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/smithy-go"
)

// Balancer is a classic or a network balancer.
type Balancer struct {
	Name string `json:"name"`
	// Kind is "classic" or "network".
	Kind string `json:"kind"`
	DNS  string `json:"dns"`
	// Ports are its listeners' ports, sorted.
	Ports []int32 `json:"ports"`
	// Groups are the IDs of its security groups.
	Groups []string `json:"groups,omitempty"`
	// Instances are its sorted backends; for a network balancer those of its first target group, but for those that are leaving it.
	Instances []string `json:"instances"`
	// Addresses are those that it was given, elastic ones by their allocations: "SUBNET=ADDRESS", sorted.
	Addresses []string `json:"addresses,omitempty"`
}

// Route is a route table entry that leads to an instance, or did.
type Route struct {
	Destination string `json:"destination"`
	Instance    string `json:"instance"`
	State       string `json:"state"`
	// Drops is that the instance still checks whether what it gets is for itself, so that the route leads nowhere.
	Drops bool `json:"drops,omitempty"`
}

// Settled looks again while what it looks at goes away between two of its calls.
func Settled[T any](look func() (T, error)) (T, error) {
	for times := 1; ; times++ {
		seen, err := look()
		var api smithy.APIError
		if times == 10 || !errors.As(err, &api) || !strings.HasSuffix(api.ErrorCode(), "NotFound") {
			return seen, err
		}
	}
}

// Balancers returns all balancers.
func (c *Cloud) Balancers(ctx context.Context) ([]Balancer, error) {
	classic, err := c.allClassic(ctx)
	if err != nil {
		return nil, err
	}
	all := []Balancer{}
	for _, found := range classic {
		one := Balancer{Name: aws.ToString(found.LoadBalancerName), Kind: "classic", DNS: aws.ToString(found.DNSName)}
		one.Groups = found.SecurityGroups
		for _, listener := range found.ListenerDescriptions {
			one.Ports = append(one.Ports, listener.Listener.LoadBalancerPort)
		}
		for _, instance := range found.Instances {
			one.Instances = append(one.Instances, aws.ToString(instance.InstanceId))
		}
		all = append(all, one.sorted())
	}
	newer, err := c.allNewer(ctx)
	if err != nil {
		return nil, err
	}
	for _, found := range newer {
		one, err := c.networkBalancer(ctx, found)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func (c *Cloud) allClassic(ctx context.Context) ([]elbtypes.LoadBalancerDescription, error) {
	all := []elbtypes.LoadBalancerDescription{}
	pages := elb.NewDescribeLoadBalancersPaginator(c.elb, &elb.DescribeLoadBalancersInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, page.LoadBalancerDescriptions...)
	}
	return all, nil
}

func (c *Cloud) allNewer(ctx context.Context) ([]elbv2types.LoadBalancer, error) {
	all := []elbv2types.LoadBalancer{}
	pages := elbv2.NewDescribeLoadBalancersPaginator(c.elbv2, &elbv2.DescribeLoadBalancersInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, page.LoadBalancers...)
	}
	return all, nil
}

func (c *Cloud) networkBalancer(ctx context.Context, found elbv2types.LoadBalancer) (Balancer, error) {
	one := Balancer{Name: aws.ToString(found.LoadBalancerName), Kind: string(found.Type), DNS: aws.ToString(found.DNSName), Groups: found.SecurityGroups}
	for _, zone := range found.AvailabilityZones {
		for _, address := range zone.LoadBalancerAddresses {
			one.Addresses = append(one.Addresses,
				aws.ToString(zone.SubnetId)+"="+aws.ToString(cmp.Or(address.AllocationId, address.PrivateIPv4Address)))
		}
	}
	slices.Sort(one.Addresses)
	listeners, err := c.elbv2.DescribeListeners(ctx, &elbv2.DescribeListenersInput{LoadBalancerArn: found.LoadBalancerArn})
	if err != nil {
		return one, err
	}
	for _, listener := range listeners.Listeners {
		one.Ports = append(one.Ports, aws.ToInt32(listener.Port))
	}
	groups, err := c.elbv2.DescribeTargetGroups(ctx, &elbv2.DescribeTargetGroupsInput{LoadBalancerArn: found.LoadBalancerArn})
	// A balancer in the making has none yet.
	if none := (*elbv2types.TargetGroupNotFoundException)(nil); errors.As(err, &none) || err == nil && len(groups.TargetGroups) == 0 {
		return one.sorted(), nil
	}
	if err != nil {
		return one, err
	}
	one.Instances, err = c.targets(ctx, groups.TargetGroups[0].TargetGroupArn)
	return one.sorted(), err
}

// sorted also replaces nil slices, so that JSON has empty lists rather than null.
func (b Balancer) sorted() Balancer {
	b.Ports, b.Instances = append([]int32{}, b.Ports...), append([]string{}, b.Instances...)
	slices.Sort(b.Ports)
	slices.Sort(b.Instances)
	return b
}

// Left is everything that a provider makes for Services and nodes, each as one line.
func (c *Cloud) Left(ctx context.Context, network Network) ([]string, error) {
	all, err := c.Balancers(ctx)
	if err != nil {
		return nil, err
	}
	security, err := c.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{})
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, group := range security.SecurityGroups {
		names[*group.GroupId] = *group.GroupName
	}
	lines := []string{}
	for _, one := range all {
		line := fmt.Sprintf("balancer %s %v", one.Name, one.Ports)
		for _, id := range one.Groups {
			line += " in " + names[id]
		}
		if len(one.Addresses) > 0 {
			line += fmt.Sprintf(" at %v", one.Addresses)
		}
		lines = append(lines, line)
	}
	classic, err := c.classic(ctx)
	if err != nil {
		return nil, err
	}
	lines = append(lines, classic...)
	listeners, err := c.listeners(ctx)
	if err != nil {
		return nil, err
	}
	lines = append(lines, listeners...)
	groups, err := c.elbv2.DescribeTargetGroups(ctx, &elbv2.DescribeTargetGroupsInput{})
	if err != nil {
		return nil, err
	}
	for _, group := range groups.TargetGroups {
		ids, err := c.targets(ctx, group.TargetGroupArn)
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("group %s %d/%s used by %d: %v",
			aws.ToString(group.TargetGroupName), aws.ToInt32(group.Port), group.Protocol, len(group.LoadBalancerArns), ids))
	}
	for _, group := range security.SecurityGroups {
		if strings.HasPrefix(*group.GroupName, "k8s-") {
			lines = append(lines, "security group "+*group.GroupName)
		}
		for _, rule := range group.IpPermissions {
			line := func(cidr, description *string) string {
				return fmt.Sprintf("rule of %s: %s %d-%d from %s: %s", aws.ToString(group.GroupName), aws.ToString(rule.IpProtocol),
					aws.ToInt32(rule.FromPort), aws.ToInt32(rule.ToPort), aws.ToString(cidr), aws.ToString(description))
			}
			for _, from := range rule.IpRanges {
				lines = append(lines, line(from.CidrIp, from.Description))
			}
			for _, from := range rule.Ipv6Ranges {
				lines = append(lines, line(from.CidrIpv6, from.Description))
			}
			for _, from := range rule.UserIdGroupPairs {
				lines = append(lines, fmt.Sprintf("rule of %s: everything from %s", aws.ToString(group.GroupName), names[aws.ToString(from.GroupId)]))
			}
		}
	}
	routes, err := c.Routes(ctx, network)
	if err != nil {
		return nil, err
	}
	for _, route := range routes {
		lines = append(lines, fmt.Sprintf("route %s to %s", route.Destination, route.Instance))
	}
	slices.Sort(lines)
	return lines, nil
}

// listeners tells of each listener of the network balancers, as one line.
func (c *Cloud) listeners(ctx context.Context) ([]string, error) {
	all, err := c.allNewer(ctx)
	if err != nil {
		return nil, err
	}
	lines := []string{}
	for _, one := range all {
		listeners, err := c.elbv2.DescribeListeners(ctx, &elbv2.DescribeListenersInput{LoadBalancerArn: one.LoadBalancerArn})
		if err != nil {
			return nil, err
		}
		for _, of := range listeners.Listeners {
			certificate := ""
			if len(of.Certificates) > 0 {
				certificate = aws.ToString(of.Certificates[0].CertificateArn)
			}
			lines = append(lines, fmt.Sprintf("listener %s %d/%s %s %s", aws.ToString(one.LoadBalancerName), aws.ToInt32(of.Port), of.Protocol,
				certificate, aws.ToString(of.SslPolicy)))
		}
	}
	return lines, nil
}

// classic tells of each setting of the classic balancers, as one line.
func (c *Cloud) classic(ctx context.Context) ([]string, error) {
	all, err := c.allClassic(ctx)
	if err != nil {
		return nil, err
	}
	lines := []string{}
	for _, one := range all {
		line := func(what string, values ...any) {
			lines = append(lines, fmt.Sprintf("classic %s: "+what, append([]any{aws.ToString(one.LoadBalancerName)}, values...)...))
		}
		settings, err := c.elb.DescribeLoadBalancerAttributes(ctx, &elb.DescribeLoadBalancerAttributesInput{LoadBalancerName: one.LoadBalancerName})
		if err != nil {
			return nil, err
		}
		attributes := settings.LoadBalancerAttributes
		instances, subnets := []string{}, slices.Clone(one.Subnets)
		for _, instance := range one.Instances {
			instances = append(instances, aws.ToString(instance.InstanceId))
		}
		slices.Sort(instances)
		slices.Sort(subnets)
		line("%s in %v with %v", aws.ToString(one.Scheme), subnets, instances)
		for _, listener := range one.ListenerDescriptions {
			of := listener.Listener
			line("%s %d to %s %d %s %v", aws.ToString(of.Protocol), of.LoadBalancerPort, aws.ToString(of.InstanceProtocol),
				aws.ToInt32(of.InstancePort), aws.ToString(of.SSLCertificateId), listener.PolicyNames)
		}
		for _, backend := range one.BackendServerDescriptions {
			line("node port %d has %v", aws.ToInt32(backend.InstancePort), backend.PolicyNames)
		}
		check := one.HealthCheck
		line("checks %s every %d s for %d s, %d and %d times", aws.ToString(check.Target), aws.ToInt32(check.Interval),
			aws.ToInt32(check.Timeout), aws.ToInt32(check.HealthyThreshold), aws.ToInt32(check.UnhealthyThreshold))
		line("cross zone %t, idle %d s", attributes.CrossZoneLoadBalancing.Enabled, aws.ToInt32(attributes.ConnectionSettings.IdleTimeout))
		line("draining %t %d s", attributes.ConnectionDraining.Enabled, aws.ToInt32(attributes.ConnectionDraining.Timeout))
		logs := attributes.AccessLog
		line("logs %t %s/%s every %d min", logs.Enabled, aws.ToString(logs.S3BucketName), aws.ToString(logs.S3BucketPrefix), aws.ToInt32(logs.EmitInterval))
	}
	return lines, nil
}

// targets returns the sorted instances of a target group but those that are leaving it.
func (c *Cloud) targets(ctx context.Context, group *string) ([]string, error) {
	health, err := c.elbv2.DescribeTargetHealth(ctx, &elbv2.DescribeTargetHealthInput{TargetGroupArn: group})
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for _, target := range health.TargetHealthDescriptions {
		if target.TargetHealth.State != elbv2types.TargetHealthStateEnumDraining {
			ids = append(ids, aws.ToString(target.Target.Id))
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Routes returns the routes to the cluster's nodes.
func (c *Cloud) Routes(ctx context.Context, network Network) ([]Route, error) {
	tables, err := c.ec2.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{RouteTableIds: []string{network.RouteTable}})
	if err != nil {
		return nil, err
	}
	routes := []Route{}
	for _, found := range tables.RouteTables[0].Routes {
		if found.GatewayId != nil {
			continue
		}
		route := Route{
			Destination: aws.ToString(found.DestinationCidrBlock) + aws.ToString(found.DestinationIpv6CidrBlock),
			Instance:    aws.ToString(found.InstanceId), State: string(found.State),
		}
		if route.Instance != "" {
			checks, err := c.ec2.DescribeInstanceAttribute(ctx, &ec2.DescribeInstanceAttributeInput{
				InstanceId: found.InstanceId, Attribute: types.InstanceAttributeNameSourceDestCheck,
			})
			if err != nil {
				return nil, err
			}
			route.Drops = aws.ToBool(checks.SourceDestCheck.Value)
		}
		routes = append(routes, route)
	}
	return routes, nil
}

// SecurityGroups returns the sorted names of the security groups in the cluster's VPC.
func (c *Cloud) SecurityGroups(ctx context.Context, network Network) ([]string, error) {
	found, err := c.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{})
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, group := range found.SecurityGroups {
		if aws.ToString(group.VpcId) == network.VPC {
			names = append(names, aws.ToString(group.GroupName))
		}
	}
	slices.Sort(names)
	return names, nil
}
