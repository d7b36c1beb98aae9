// Package vendorerrors holds the mappings against the error values of the clouds' own libraries. It is a module of its own, so
// that no user of the bridge downloads them.
package vendorerrors

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/bridge/vendors"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	//lint:ignore SA1019 the provider's releases before 1.33 use it
	"github.com/aws/aws-sdk-go/aws/awserr"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/gophercloud/gophercloud/v2"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"
)

const (
	nothing    = pb.ErrorReason_ERROR_REASON_UNSPECIFIED
	throttling = pb.ErrorReason_ERROR_REASON_RATE_LIMITED
	quota      = pb.ErrorReason_ERROR_REASON_QUOTA_EXCEEDED
	capacity   = pb.ErrorReason_ERROR_REASON_CAPACITY_UNAVAILABLE
	invalid    = pb.ErrorReason_ERROR_REASON_CLOUD_CREDENTIALS_INVALID
	expired    = pb.ErrorReason_ERROR_REASON_CLOUD_CREDENTIALS_EXPIRED
	denied     = pb.ErrorReason_ERROR_REASON_CLOUD_PERMISSION_DENIED
	busy       = pb.ErrorReason_ERROR_REASON_CONCURRENT_OPERATION
)

// means holds an error, as it is and as providers wrap it, against what it means.
func means(t *testing.T, cloud string, err error, want pb.ErrorReason, action string) {
	t.Helper()
	for _, wrapped := range []error{err, fmt.Errorf("ensuring load balancer: %w", err), fmt.Errorf("error ensuring load balancer: %q", err)} {
		got := vendors.For(cloud)(wrapped)
		switch {
		case got == nil && want == nothing:
		case got == nil:
			t.Errorf("%s: %s\nmeans nothing, not %v", cloud, wrapped, want)
		case got.Reason() != want || got.Metadata("action") != action:
			t.Errorf("%s: %s\nbecame %v with action %q, not %v with %q", cloud, wrapped, got, got.Metadata("action"), want, action)
		case want == throttling && got.RetryAfter() <= 0:
			t.Errorf("%s: %s\nnever to be retried", cloud, wrapped)
		}
	}
}

func v2(service, operation string, status int, err error) error {
	response := &smithyhttp.Response{Response: &http.Response{StatusCode: status}}
	return &smithy.OperationError{ServiceID: service, OperationName: operation, Err: &smithyhttp.ResponseError{Response: response, Err: err}}
}

func TestAWS(t *testing.T) {
	api := func(code, message string) error { return &smithy.GenericAPIError{Code: code, Message: message} }
	say := func(text string) *string { return &text }
	may := "User: arn:aws:sts::1:assumed-role/ccm is not authorized to perform: elasticloadbalancing:CreateLoadBalancer on resource: *"
	for _, row := range []struct {
		err    error
		want   pb.ErrorReason
		action string
	}{
		{api("RequestLimitExceeded", "Request limit exceeded."), throttling, ""},
		{api("Throttling", "Rate exceeded"), throttling, ""},
		{&elb.TooManyLoadBalancersException{Message: say("The maximum number of load balancers has been reached")}, quota, ""},
		{&elb.TooManyTargetsException{Message: say("1001 targets")}, quota, ""},
		{api("RulesPerSecurityGroupLimitExceeded", "The maximum number of rules per security group has been reached."), quota, ""},
		{api("InsufficientFreeAddressesInSubnet", "Not enough IP space available in subnet-1"), capacity, ""},
		{api("AccessDenied", may), denied, "elasticloadbalancing:CreateLoadBalancer"},
		{api("UnauthorizedOperation", "You are not authorized to perform this operation."), denied, ""},
		{api("AuthFailure", "AWS was not able to validate the provided access credentials"), invalid, ""},
		{api("ExpiredToken", "The security token included in the request is expired"), expired, ""},
		{&elb.LoadBalancerNotFoundException{Message: say("One or more load balancers not found")}, nothing, ""},
		{api("InvalidSubnet", "VPC vpc-1 has no internet gateway"), nothing, ""},
	} {
		means(t, "aws", v2("Elastic Load Balancing v2", "CreateLoadBalancer", 400, row.err), row.want, row.action)
	}
	// As the provider words them.
	for _, text := range []string{
		"Protocol UDP not supported by LoadBalancer", "mixed protocol is not supported for LoadBalancer",
		"unsupported load balancer affinity: ClientIP", "LoadBalancerIP cannot be specified for AWS ELB",
	} {
		means(t, "aws", errors.New(text), pb.ErrorReason_ERROR_REASON_UNSUPPORTED_FEATURE, "")
	}
	old := func(code, message string) error {
		return awserr.NewRequestFailure(awserr.New(code, message, nil), 400, "6f1c1f9e-3f0f-4c70-9d1e-9d3f0d2b7a51")
	}
	means(t, "aws", old("RequestLimitExceeded", "Request limit exceeded."), throttling, "")
	means(t, "aws", old("AccessDenied", may), denied, "elasticloadbalancing:CreateLoadBalancer")
	means(t, "aws", old("InvalidInstanceID.NotFound", "The instance ID 'i-1' does not exist"), nothing, "")
	means(t, "aws", errors.New("Throttling: the word alone is no answer of AWS"), nothing, "")
}

// azure is the error that azcore makes of a response.
func azure(status int, body string) error {
	request := httptest.NewRequest(http.MethodPut, "https://management.azure.com/subscriptions/1", nil)
	return runtime.NewResponseError(&http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), Request: request,
		Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{"Content-Type": {"application/json"}},
	})
}

func TestAzure(t *testing.T) {
	code := func(code, message string) string {
		return fmt.Sprintf(`{"error": {"code": %q, "message": %q}}`, code, message)
	}
	for _, row := range []struct {
		status int
		body   string
		want   pb.ErrorReason
		action string
	}{
		{429, code("TooManyRequests", "The request is being throttled."), throttling, ""},
		{429, "", throttling, ""},
		{429, code("SubscriptionRequestsThrottled", "Number of requests exceeded the limit"), throttling, ""},
		{400, code("PublicIPCountLimitReached", "Cannot create more than 10 public IP addresses"), quota, ""},
		{409, code("OperationNotAllowed", "Operation could not be completed as it results in exceeding approved Total Regional Cores quota."), quota, ""},
		{409, code("OperationNotAllowed", "The server does not allow it"), nothing, ""},
		{403, code("AuthorizationFailed", "The client 'x' does not have authorization to perform action 'Microsoft.Network/loadBalancers/write' over scope '/y'"), denied, "Microsoft.Network/loadBalancers/write"},
		{401, code("ExpiredAuthenticationToken", "The access token expiry UTC time is earlier than current UTC time"), expired, ""},
		{401, code("InvalidAuthenticationToken", "The access token is invalid"), invalid, ""},
		{409, code("ZonalAllocationFailed", "Allocation failed"), capacity, ""},
		{409, code("AnotherOperationInProgress", "Another operation on this or dependent resource is in progress"), busy, ""},
		{404, code("ResourceNotFound", "The Resource was not found"), nothing, ""},
		{500, code("InternalServerError", "An error occurred"), nothing, ""},
	} {
		means(t, "azure", azure(row.status, row.body), row.want, row.action)
	}
	// As azidentity quotes the login service.
	means(t, "azure", errors.New("ClientSecretCredential authentication failed\nPOST https://login.microsoftonline.com/t/oauth2/v2.0/token\nRESPONSE 401 Unauthorized\n"+
		`{"error": "invalid_client", "error_description": "AADSTS7000222: The provided client secret keys for app 'x' are expired."}`), expired, "")
	// As cloud-provider-azure's pkg/retry says it.
	told := vendors.Azure(errors.New("Retriable: true, RetryAfter: 17s, HTTPStatusCode: 429, RawError: TooManyRequests"))
	if told.Reason() != throttling || told.RetryAfter() != 17*time.Second {
		t.Error(told, told.RetryAfter())
	}
}

func TestGCE(t *testing.T) {
	api := func(code int, reason, message string) error {
		return &googleapi.Error{Code: code, Message: message, Errors: []googleapi.ErrorItem{{Reason: reason, Message: message}}}
	}
	for _, row := range []struct {
		err    error
		want   pb.ErrorReason
		action string
	}{
		{api(403, "rateLimitExceeded", "Rate Limit Exceeded"), throttling, ""},
		{api(403, "quotaExceeded", "Quota 'FORWARDING_RULES' exceeded. Limit: 75.0"), quota, ""},
		{&googleapi.Error{Code: 403, Message: "QUOTA_EXCEEDED - Quota 'IN_USE_ADDRESSES' exceeded. Limit: 8.0 in region r."}, quota, ""},
		{api(403, "forbidden", "Required 'compute.forwardingRules.create' permission for 'projects/p/regions/r/forwardingRules/a'"), denied, "compute.forwardingRules.create"},
		{api(401, "authError", "Invalid Credentials"), invalid, ""},
		{api(429, "", "Too many requests"), throttling, ""},
		{&googleapi.Error{Code: 503, Message: "ZONE_RESOURCE_POOL_EXHAUSTED - The zone does not have enough resources"}, capacity, ""},
		{api(404, "notFound", "The resource was not found"), nothing, ""},
		{api(503, "backendError", "Backend Error"), nothing, ""},
		{&oauth2.RetrieveError{Response: &http.Response{Status: "400 Bad Request"}, ErrorCode: "invalid_grant", ErrorDescription: "Invalid JWT Signature."}, invalid, ""},
	} {
		means(t, "gce", row.err, row.want, row.action)
	}
}

func TestOpenStack(t *testing.T) {
	for _, row := range []struct {
		status int
		body   string
		want   pb.ErrorReason
		action string
	}{
		{409, `{"NeutronError": {"type": "OverQuota", "message": "Quota exceeded for resources: ['floatingip']."}}`, quota, ""},
		{403, `{"faultcode": "Client", "faultstring": "Quota has been met for resources: Load Balancer"}`, quota, ""},
		{403, `{"forbidden": {"message": "Quota exceeded for cores: Requested 4, but already used 20 of 20 cores", "code": 403}}`, quota, ""},
		{403, `{"NeutronError": {"type": "PolicyNotAuthorized", "message": "rule:create_port is disallowed by policy"}}`, denied, "create_port"},
		{401, `{"error": {"code": 401, "message": "The request you have made requires authentication."}}`, invalid, ""},
		{429, `Too Many Requests`, throttling, ""},
		{409, `{"faultcode": "Client", "faultstring": "Load Balancer 1 is immutable and cannot be updated."}`, busy, ""},
		{409, `{"NeutronError": {"type": "RouterInUse"}}`, nothing, ""},
		{404, `{"itemNotFound": {}}`, nothing, ""},
		{500, `Internal Server Error`, nothing, ""},
	} {
		means(t, "openstack", gophercloud.ErrUnexpectedResponseCode{
			URL: "https://octavia.example/v2/lbaas/loadbalancers", Method: "POST", Expected: []int{201}, Actual: row.status, Body: []byte(row.body),
		}, row.want, row.action)
	}
}

// Whoever has no mapping is told nothing.
func TestOtherProvidersHaveNoMapping(t *testing.T) {
	if vendors.For("vsphere") != nil {
		t.Error("a mapping")
	}
	var none *fault.Error
	if got := vendors.AWS(errors.New("x")); got != none {
		t.Error(got)
	}
}
