package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"cloudprovider.ccm/sdk/bridge"
	"cloudprovider.ccm/sdk/bridge/vendors"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"

	"google.golang.org/grpc/codes"
)

const (
	throttledByAWS = "operation error Elastic Load Balancing v2: CreateLoadBalancer, https response error StatusCode: 400, RequestID: 6f1c1f9e-3f0f-4c70-9d1e-9d3f0d2b7a51, api error Throttling: Rate exceeded"
	refusedByAWS   = "operation error EC2: DescribeInstances, https response error StatusCode: 401, RequestID: 6f1c1f9e-3f0f-4c70-9d1e-9d3f0d2b7a51, api error AuthFailure: AWS was not able to validate the provided access credentials"
)

// branded is a cloud with the name of a vendor's provider.
type branded struct {
	*cloud
	name string
}

func (b branded) ProviderName() string { return b.name }

// D7: without a mapping, the host retries a throttled call as it would a bug. The vendor's name is enough to have one.
func TestAVendorsErrorsAreToldApart(t *testing.T) {
	failing := func() *cloud {
		made := newer()
		made.ensure = func(context.Context, *v1.Service, []*v1.Node) (*v1.LoadBalancerStatus, error) {
			return nil, errors.New(throttledByAWS)
		}
		return made
	}
	own := func(err error) *fault.Error { return fault.QuotaExceeded("the project", "load balancers") }
	for _, row := range []struct {
		name    string
		options []bridge.Option
		code    codes.Code
		reason  pb.ErrorReason
	}{
		{"aws", nil, codes.ResourceExhausted, pb.ErrorReason_ERROR_REASON_RATE_LIMITED},
		{"fake", nil, codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
		{"fake", []bridge.Option{bridge.WithErrors(vendors.AWS)}, codes.ResourceExhausted, pb.ErrorReason_ERROR_REASON_RATE_LIMITED},
		{"aws", []bridge.Option{bridge.WithErrors(own)}, codes.ResourceExhausted, pb.ErrorReason_ERROR_REASON_QUOTA_EXCEEDED},
	} {
		conn := serve(t, branded{failing(), row.name}, row.options...)
		err := ensure(t, conn, "web")
		expect(t, err, row.code, row.reason)
		told, _ := fault.FromStatus(err)
		if row.reason != pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR && told.Metadata("cloud_request_id") == "" {
			t.Errorf("%s: the request's id is lost: %v", row.name, told)
		}
	}
}

// A cloud quotes what it refuses. Whoever writes the Service, or is root on the node, must not choose what that means for
// everybody's calls: a pause, or no deletion anywhere.
func TestWhatStandsOnAnObjectIsNotTheCloudsWord(t *testing.T) {
	const quoting = "operation error EC2: AuthorizeSecurityGroupIngress, https response error StatusCode: 400, api error InvalidGroup.NotFound: the group '%s' does not exist"
	echo := func(annotations map[string]string) error {
		return fmt.Errorf(quoting, strings.Split(annotations["groups"], ", ")[1])
	}
	internal, limited := pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, pb.ErrorReason_ERROR_REASON_RATE_LIMITED
	for _, row := range []struct {
		groups  string
		service pb.ErrorReason
	}{
		{"sg-1, Throttling: sg-2", internal},
		{"sg-1, ExpiredToken: sg-2", internal},
		{"sg-1, AuthFailure: AWS was not able to validate the provided access credentials", internal},
		{"sg-1, sg-2", limited},
	} {
		made := newer()
		made.ensure = func(_ context.Context, service *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
			if row.service == limited {
				return nil, errors.New(throttledByAWS)
			}
			return nil, echo(service.Annotations)
		}
		made.exists = func(_ context.Context, node *v1.Node) (bool, error) { return false, echo(node.Annotations) }
		conn := serve(t, branded{made, "aws"}, bridge.WithProviderIDPrefixes("fake://"))
		written := map[string]string{"groups": row.groups}
		request := ensureRequest("web")
		request.Service.Annotations = written
		_, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request)
		if told, _ := fault.FromStatus(err); told.Reason() != row.service {
			t.Errorf("%q on a Service: %v", row.groups, err)
		}
		ref := &pb.NodeRef{Name: "n", ProviderId: "fake://n", Annotations: written}
		answer, err := pb.NewInstancesClient(conn).BatchGetInstances(soon(t), batch(ref))
		if err != nil {
			t.Fatal(err)
		}
		if reason := answer.GetResults()[0].GetError().GetReason(); reason != internal {
			t.Errorf("%q on a Node: %v", row.groups, reason)
		}
	}
}

// While the cloud refuses the credentials, it says nothing about instances: the host destroys nothing, and says why.
func TestRefusedCredentialsFreeze(t *testing.T) {
	well := atomic.Bool{}
	made := newer()
	made.exists = func(context.Context, *v1.Node) (bool, error) {
		if well.Load() {
			return true, nil
		}
		return false, errors.New(refusedByAWS)
	}
	conn := serve(t, branded{made, "aws"}, bridge.WithProviderIDPrefixes("fake://"))
	look := func() pb.ErrorReason {
		reason := pb.ErrorReason_ERROR_REASON_UNSPECIFIED
		for node := range 3 {
			name := fmt.Sprintf("n%d", node)
			answer, err := pb.NewInstancesClient(conn).BatchGetInstances(soon(t), batch(&pb.NodeRef{Name: name, ProviderId: "fake://" + name}))
			if err != nil {
				t.Fatal(err)
			}
			reason = answer.GetResults()[0].GetError().GetReason()
		}
		return reason
	}
	if reason := look(); reason != pb.ErrorReason_ERROR_REASON_CLOUD_CREDENTIALS_INVALID {
		t.Error(reason)
	}
	credentials := func() pb.ConditionStatus {
		answer, err := pb.NewCloudProviderClient(conn).GetStatus(soon(t), &pb.GetStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, condition := range answer.GetConditions() {
			if condition.GetType() == pb.ConditionType_CONDITION_TYPE_CREDENTIALS_VALID {
				return condition.GetStatus()
			}
		}
		return pb.ConditionStatus_CONDITION_STATUS_UNSPECIFIED
	}
	if told := credentials(); told != pb.ConditionStatus_CONDITION_STATUS_FALSE {
		t.Error(told)
	}
	well.Store(true)
	look()
	if told := credentials(); told != pb.ConditionStatus_CONDITION_STATUS_TRUE {
		t.Error(told)
	}
}
