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
	"github.com/aws/smithy-go"
)

// TestTheEmulatorAnswersAsEC2Does tries what moto by itself answers otherwise.
func TestTheEmulatorAnswersAsEC2Does(t *testing.T) {
	ctx := t.Context()
	moto := must(emulator.Start(ctx, t.Output()))(t)
	t.Cleanup(func() { moto.Stop() })
	cloud := emulator.At(moto.URL)
	network := must(cloud.MakeNetwork(ctx))(t)
	instances := must(cloud.Launch(ctx, network, emulator.Zones[0], 12, "", "trn1.32xlarge"))(t)
	client := ec2.New(ec2.Options{
		Region: emulator.Region, BaseEndpoint: &moto.URL, Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
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
	shapes := must(cloud.Shapes(ctx, network))(t)
	for _, shape := range shapes {
		if want := shape.ID + ".ec2.internal"; shape.Name == "named by its ID" && shape.Node != want {
			t.Errorf("an instance named by its ID has the name %s, want %s", shape.Node, want)
		}
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
