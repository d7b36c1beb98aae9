package main_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"cloudprovider.ccm/bridged-aws/emulator"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	classic "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	classictypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/smithy-go"
)

// TestTheEmulatorAnswersAsEC2Does tries what moto by itself answers otherwise.
func TestTheEmulatorAnswersAsEC2Does(t *testing.T) {
	ctx := t.Context()
	url, cloud, network := emulated(ctx, t)
	instances := must(cloud.Launch(ctx, network, emulator.Zones[0], 12, "", "trn1.32xlarge"))(t)
	client := ec2.New(ec2.Options{
		Region: emulator.Region, BaseEndpoint: &url, Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
	})
	// describe returns how many instances there are, "more" if there is another page, and the code of an error with its message.
	describe := func(input *ec2.DescribeInstancesInput) string {
		found, err := client.DescribeInstances(ctx, input)
		if err != nil {
			return refused(err)
		}
		count := 0
		for _, group := range found.Reservations {
			count += len(group.Instances)
		}
		more := ""
		if found.NextToken != nil {
			more = " and more"
		}
		return fmt.Sprint(count, more)
	}
	filter := func(name string, values ...string) []types.Filter {
		return []types.Filter{{Name: &name, Values: values}}
	}
	first := instances[0].ID
	hidden := instances[11].ID
	if err := cloud.Hide(ctx, hidden); err != nil {
		t.Fatal(err)
	}
	many := slices.Repeat([]string{"10.0.0.1"}, 201)
	for what, row := range map[string]struct {
		input *ec2.DescribeInstancesInput
		want  string
	}{
		"an instance twice":   {&ec2.DescribeInstancesInput{InstanceIds: []string{first, first}}, "1"},
		"a malformed ID":      {&ec2.DescribeInstancesInput{InstanceIds: []string{first, "i-x"}}, `InvalidInstanceID.Malformed: Invalid id: "i-x"`},
		"two unknown ones":    {&ec2.DescribeInstancesInput{InstanceIds: []string{"i-01234567", first, hidden}}, "InvalidInstanceID.NotFound: The instance IDs 'i-01234567, " + hidden + "' do not exist"},
		"a small page":        {&ec2.DescribeInstancesInput{MaxResults: aws.Int32(5)}, "5 and more"},
		"the last page":       {&ec2.DescribeInstancesInput{MaxResults: aws.Int32(5), NextToken: aws.String("10")}, "1"},
		"too small a page":    {&ec2.DescribeInstancesInput{MaxResults: aws.Int32(4)}, "InvalidParameterValue: Value ( 4 ) for parameter maxResults is invalid."},
		"a foreign token":     {&ec2.DescribeInstancesInput{MaxResults: aws.Int32(5), NextToken: aws.String("x")}, "InvalidNextToken: The specified token is not valid."},
		"many values":         {&ec2.DescribeInstancesInput{Filters: filter("private-ip-address", many...)}, "FilterLimitExceeded: The maximum number of filter values specified on a single call is 200"},
		"an address":          {&ec2.DescribeInstancesInput{Filters: filter("network-interface.addresses.private-ip-address", instances[0].Address)}, "1"},
		"a page and an ID":    {&ec2.DescribeInstancesInput{MaxResults: aws.Int32(5), InstanceIds: []string{first}}, "InvalidParameterCombination: The parameter instancesSet cannot be used with the parameter maxResults"},
		"without hidden ones": {&ec2.DescribeInstancesInput{}, "11"},
	} {
		if got := describe(row.input); got != row.want {
			t.Errorf("%s: %s, want %s", what, got, row.want)
		}
	}
	place := must(client.DescribeInstanceTopology(ctx, &ec2.DescribeInstanceTopologyInput{InstanceIds: []string{first}}))(t)
	if got := place.Instances[0].NetworkNodes; len(got) != 3 {
		t.Errorf("a place in the network of %v, want three layers", got)
	}
	_, err := client.DescribeInstanceTopology(ctx, &ec2.DescribeInstanceTopologyInput{InstanceIds: slices.Repeat([]string{first}, 101)})
	if got := refused(err); !strings.HasPrefix(got, "InvalidParameterValue") {
		t.Errorf("the places of 101 instances: %s", got)
	}
	places := must(client.DescribeInstanceTopology(ctx, &ec2.DescribeInstanceTopologyInput{InstanceIds: slices.Repeat([]string{first}, 21)}))(t)
	if places.NextToken == nil {
		t.Error("the places of 21 instances are one page")
	}
	port := func(port int32) types.IpPermission {
		permission := types.IpPermission{IpProtocol: aws.String("tcp"), FromPort: &port, ToPort: &port}
		for number := range 40 {
			permission.IpRanges = append(permission.IpRanges, types.IpRange{CidrIp: aws.String(fmt.Sprintf("192.0.2.%d/32", number))})
		}
		return permission
	}
	_, err = client.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{
		GroupId: &network.SecurityGroup, IpPermissions: []types.IpPermission{port(80), port(81)},
	})
	groups := must(client.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{network.SecurityGroup}}))(t)
	if got, left := refused(err), groups.SecurityGroups[0].IpPermissions; !strings.HasPrefix(got, "RulesPerSecurityGroupLimitExceeded") || len(left) != 0 {
		t.Errorf("80 rules: %s, and %d of their ports stay", got, len(left))
	}
	shapes := must(cloud.Shapes(ctx, network))(t)
	for _, shape := range shapes {
		if want := shape.ID + ".ec2.internal"; shape.Name == "named by its ID" && shape.Node != want {
			t.Errorf("an instance named by its ID has the name %s, want %s", shape.Node, want)
		}
	}
}

// TestTheEmulatorAnswersAsElasticLoadBalancingDoes tries what moto by itself answers otherwise.
func TestTheEmulatorAnswersAsElasticLoadBalancingDoes(t *testing.T) {
	ctx := t.Context()
	url, cloud, network := emulated(ctx, t)
	instance := must(cloud.Launch(ctx, network, emulator.Zones[0], 1, "", ""))(t)[0]
	key := credentials.NewStaticCredentialsProvider("a", "b", "")
	machines := ec2.New(ec2.Options{Region: emulator.Region, BaseEndpoint: &url, Credentials: key})
	client := elb.New(elb.Options{Region: emulator.Region, BaseEndpoint: &url, Credentials: key})
	is := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	code := func(err error) string {
		got, _, _ := strings.Cut(refused(err), ":")
		return got
	}

	address := must(machines.AllocateAddress(ctx, &ec2.AllocateAddressInput{}))(t)
	input := &elb.CreateLoadBalancerInput{
		Name: aws.String("web"), Type: elbtypes.LoadBalancerTypeEnumNetwork, SecurityGroups: []string{network.SecurityGroup},
		SubnetMappings: []elbtypes.SubnetMapping{
			{SubnetId: aws.String(network.Subnets[emulator.Zones[0]]), AllocationId: address.AllocationId},
			{SubnetId: aws.String(network.Subnets[emulator.Zones[1]]), PrivateIPv4Address: aws.String("10.0.64.9")},
		},
	}
	made := must(client.CreateLoadBalancer(ctx, input))(t).LoadBalancers[0]
	if !strings.Contains(*made.LoadBalancerArn, ":loadbalancer/net/web/") {
		t.Errorf("the ARN of a network balancer is %s", *made.LoadBalancerArn)
	}
	is("without a scheme", string(made.Scheme), "internet-facing")
	given := map[string]string{}
	for _, zone := range made.AvailabilityZones {
		of := zone.LoadBalancerAddresses[0]
		given[aws.ToString(zone.SubnetId)] = aws.ToString(of.AllocationId) + aws.ToString(of.PrivateIPv4Address)
	}
	is("its elastic address", given[network.Subnets[emulator.Zones[0]]], *address.AllocationId)
	is("its private address", given[network.Subnets[emulator.Zones[1]]], "10.0.64.9")
	again := must(client.CreateLoadBalancer(ctx, input))(t).LoadBalancers[0]
	is("the same once more", *again.LoadBalancerArn, *made.LoadBalancerArn)
	input.Scheme = elbtypes.LoadBalancerSchemeEnumInternal
	_, err := client.CreateLoadBalancer(ctx, input)
	is("another of the name", code(err), "DuplicateLoadBalancerName")
	_, err = client.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{Names: []string{"web", "other"}})
	is("an unknown name among others", code(err), "LoadBalancerNotFound")

	target := &elb.CreateTargetGroupInput{
		Name: aws.String("group"), Port: aws.Int32(30080), Protocol: elbtypes.ProtocolEnumTcp, VpcId: &network.VPC,
		TargetType: elbtypes.TargetTypeEnumInstance,
	}
	group := must(client.CreateTargetGroup(ctx, target))(t).TargetGroups[0].TargetGroupArn
	is("the same group once more", *must(client.CreateTargetGroup(ctx, target))(t).TargetGroups[0].TargetGroupArn, *group)
	target.Port = aws.Int32(30081)
	_, err = client.CreateTargetGroup(ctx, target)
	is("another group of the name", code(err), "DuplicateTargetGroupName")
	targets := func(ids ...string) (all []elbtypes.TargetDescription) {
		for _, id := range ids {
			all = append(all, elbtypes.TargetDescription{Id: aws.String(id)})
		}
		return all
	}
	register := func(ids ...string) error {
		_, err := client.RegisterTargets(ctx, &elb.RegisterTargetsInput{TargetGroupArn: group, Targets: targets(ids...)})
		return err
	}
	is("an unknown target", code(register("i-01234567")), "InvalidTarget")
	if err := register(instance.ID); err != nil {
		t.Error(err)
	}
	must(client.DeregisterTargets(ctx, &elb.DeregisterTargetsInput{TargetGroupArn: group, Targets: targets(instance.ID)}))(t)
	health := must(client.DescribeTargetHealth(ctx, &elb.DescribeTargetHealthInput{TargetGroupArn: group}))(t).TargetHealthDescriptions
	if len(health) != 1 || health[0].TargetHealth.State != elbtypes.TargetHealthStateEnumDraining {
		t.Errorf("after it is deregistered: %v, want it draining", health)
	}

	listen := &elb.CreateListenerInput{
		LoadBalancerArn: made.LoadBalancerArn, Port: aws.Int32(80), Protocol: elbtypes.ProtocolEnumTcp,
		DefaultActions: []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: group}},
	}
	listener := must(client.CreateListener(ctx, listen))(t).Listeners[0]
	is("the policy of TCP", aws.ToString(listener.SslPolicy), "")
	_, err = client.CreateListener(ctx, listen)
	is("a second listener", code(err), "DuplicateListener")
	listen.Port, listen.Protocol = aws.Int32(443), elbtypes.ProtocolEnumTls
	_, err = client.CreateListener(ctx, listen)
	is("TLS without a certificate", code(err), "ValidationError")

	target.Name, target.Port, target.Protocol = aws.String("both"), aws.Int32(30053), elbtypes.ProtocolEnumTcpUdp
	other := must(client.CreateTargetGroup(ctx, target))(t).TargetGroups[0].TargetGroupArn
	modified := must(client.ModifyListener(ctx, &elb.ModifyListenerInput{
		ListenerArn: listener.ListenerArn, Protocol: elbtypes.ProtocolEnumTcpUdp,
		DefaultActions: []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: other}},
	}))(t).Listeners[0]
	is("a listener that gets UDP, too", string(modified.Protocol), "TCP_UDP")
	used := must(client.DescribeTargetGroups(ctx, &elb.DescribeTargetGroupsInput{LoadBalancerArn: made.LoadBalancerArn}))(t).TargetGroups
	if len(used) != 1 || *used[0].TargetGroupArn != *other {
		t.Errorf("the balancer uses %v, want the group of its listener alone", used)
	}
	of := map[string]string{}
	for _, one := range must(client.DescribeTargetGroupAttributes(ctx, &elb.DescribeTargetGroupAttributesInput{TargetGroupArn: group}))(t).Attributes {
		of[*one.Key] = *one.Value
	}
	is("the attributes of a group", of["preserve_client_ip.enabled"]+" "+of["proxy_protocol_v2.enabled"], "true false")

	attributes := map[string]string{}
	described := must(client.DescribeLoadBalancerAttributes(ctx, &elb.DescribeLoadBalancerAttributesInput{LoadBalancerArn: made.LoadBalancerArn}))(t)
	for _, one := range described.Attributes {
		attributes[*one.Key] = *one.Value
	}
	is("access logs", attributes["access_logs.s3.enabled"], "false")
	_, err = client.DescribeTags(ctx, &elb.DescribeTagsInput{ResourceArns: slices.Repeat([]string{*made.LoadBalancerArn}, 21)})
	is("the tags of 21", code(err), "ValidationError")
	_, err = client.DescribeTags(ctx, &elb.DescribeTagsInput{ResourceArns: []string{*made.LoadBalancerArn + "0"}})
	is("the tags of an unknown balancer", code(err), "LoadBalancerNotFound")

	_, err = machines.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &network.SecurityGroup})
	is("a group in use", code(err), "DependencyViolation")
	_, err = machines.CreateTags(ctx, &ec2.CreateTagsInput{
		Resources: []string{"i-01234567"}, Tags: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}},
	})
	is("tags of an unknown instance", code(err), "InvalidInstanceID.NotFound")
	protect := elbtypes.LoadBalancerAttribute{Key: aws.String("deletion_protection.enabled"), Value: aws.String("true")}
	must(client.ModifyLoadBalancerAttributes(ctx, &elb.ModifyLoadBalancerAttributesInput{
		LoadBalancerArn: made.LoadBalancerArn, Attributes: []elbtypes.LoadBalancerAttribute{protect},
	}))(t)
	_, err = client.DeleteLoadBalancer(ctx, &elb.DeleteLoadBalancerInput{LoadBalancerArn: made.LoadBalancerArn})
	is("a protected balancer", code(err), "OperationNotPermitted")
}

// TestTheEmulatorAnswersAsClassicLoadBalancingDoes tries what moto by itself answers otherwise.
func TestTheEmulatorAnswersAsClassicLoadBalancingDoes(t *testing.T) {
	ctx := t.Context()
	url, cloud, network := emulated(ctx, t)
	instance := must(cloud.Launch(ctx, network, emulator.Zones[0], 1, "", ""))(t)[0]
	key := credentials.NewStaticCredentialsProvider("a", "b", "")
	client := classic.New(classic.Options{Region: emulator.Region, BaseEndpoint: &url, Credentials: key})
	machines := ec2.New(ec2.Options{Region: emulator.Region, BaseEndpoint: &url, Credentials: key})
	name := aws.String("web")
	listener := func(port, nodePort int32) classictypes.Listener {
		return classictypes.Listener{
			Protocol: aws.String("ssl"), InstanceProtocol: aws.String("tcp"), LoadBalancerPort: port, InstancePort: &nodePort,
			SSLCertificateId: aws.String("arn:aws:iam::123456789012:server-certificate/web"),
		}
	}
	must(client.CreateLoadBalancer(ctx, &classic.CreateLoadBalancerInput{
		LoadBalancerName: name, Listeners: []classictypes.Listener{listener(443, 30443)},
		Subnets: []string{network.Subnets[emulator.Zones[0]]}, SecurityGroups: []string{network.SecurityGroup},
	}))(t)
	settings := must(client.DescribeLoadBalancerAttributes(ctx, &classic.DescribeLoadBalancerAttributesInput{LoadBalancerName: name}))(t)
	if got := aws.ToInt32(settings.LoadBalancerAttributes.ConnectionDraining.Timeout); got != 300 {
		t.Errorf("a new balancer drains for %d s, want 300", got)
	}
	must(client.CreateLoadBalancerListeners(ctx, &classic.CreateLoadBalancerListenersInput{
		LoadBalancerName: name, Listeners: []classictypes.Listener{listener(444, 30444), listener(445, 30445)},
	}))(t)
	must(client.CreateLoadBalancerPolicy(ctx, &classic.CreateLoadBalancerPolicyInput{
		LoadBalancerName: name, PolicyName: aws.String("proxy"), PolicyTypeName: aws.String("ProxyProtocolPolicyType"),
	}))(t)
	must(client.SetLoadBalancerPoliciesForBackendServer(ctx, &classic.SetLoadBalancerPoliciesForBackendServerInput{
		LoadBalancerName: name, InstancePort: aws.Int32(30445), PolicyNames: []string{"proxy"},
	}))(t)
	register := func(id string) error {
		_, err := client.RegisterInstancesWithLoadBalancer(ctx, &classic.RegisterInstancesWithLoadBalancerInput{
			LoadBalancerName: name, Instances: []classictypes.Instance{{InstanceId: &id}},
		})
		return err
	}
	for range 2 {
		if err := register(instance.ID); err != nil {
			t.Error(err)
		}
	}
	if got := refused(register("i-01234567")); !strings.HasPrefix(got, "InvalidInstance: ") {
		t.Errorf("an unknown instance: %s", got)
	}
	describe := func() classictypes.LoadBalancerDescription {
		return must(client.DescribeLoadBalancers(ctx, &classic.DescribeLoadBalancersInput{}))(t).LoadBalancerDescriptions[0]
	}
	made := describe()
	for _, one := range made.ListenerDescriptions {
		if got := aws.ToString(one.Listener.Protocol) + " to " + aws.ToString(one.Listener.InstanceProtocol); got != "SSL to TCP" {
			t.Errorf("the listener of port %d speaks %s, want SSL to TCP", one.Listener.LoadBalancerPort, got)
		}
	}
	if len(made.BackendServerDescriptions) != 1 || aws.ToInt32(made.BackendServerDescriptions[0].InstancePort) != 30445 {
		t.Errorf("the node ports with policies are %v, want 30445", made.BackendServerDescriptions)
	}
	if len(made.Instances) != 1 {
		t.Errorf("an instance that is registered twice: %v", made.Instances)
	}
	must(client.DeleteLoadBalancerListeners(ctx, &classic.DeleteLoadBalancerListenersInput{
		LoadBalancerName: name, LoadBalancerPorts: []int32{443, 444},
	}))(t)
	if left := describe().ListenerDescriptions; len(left) != 1 || left[0].Listener.LoadBalancerPort != 445 {
		t.Errorf("without listeners 443 and 444 it has %v", left)
	}
	rule := func(description *string) []types.IpPermission {
		pair := types.UserIdGroupPair{GroupId: &network.SecurityGroup, Description: description}
		return []types.IpPermission{{IpProtocol: aws.String("-1"), UserIdGroupPairs: []types.UserIdGroupPair{pair}}}
	}
	must(machines.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{
		GroupId: &network.SecurityGroup, IpPermissions: rule(aws.String("why")),
	}))(t)
	_, err := machines.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{
		GroupId: &network.SecurityGroup, IpPermissions: rule(nil),
	})
	if err != nil {
		t.Errorf("a rule that is revoked without its description: %v", err)
	}
	_, err = client.AddTags(ctx, &classic.AddTagsInput{
		LoadBalancerNames: []string{"web", "web"}, Tags: []classictypes.Tag{{Key: aws.String("a"), Value: aws.String("b")}},
	})
	if got := refused(err); !strings.HasPrefix(got, "ValidationError: ") {
		t.Errorf("tags of two: %s", got)
	}
	_, err = client.DescribeTags(ctx, &classic.DescribeTagsInput{LoadBalancerNames: slices.Repeat([]string{"web"}, 21)})
	if got := refused(err); !strings.HasPrefix(got, "ValidationError: ") {
		t.Errorf("the tags of 21: %s", got)
	}
}

// refused is the code and the message of AWS's answer.
func refused(err error) string {
	var answer smithy.APIError
	if !errors.As(err, &answer) {
		return fmt.Sprint(err)
	}
	return answer.ErrorCode() + ": " + answer.ErrorMessage()
}
