package vendors

import (
	"regexp"
	"strings"

	"cloudprovider.ccm/sdk/fault"
)

var (
	// awsStatus is in every error of aws-sdk-go-v2 ("https response error StatusCode: 400, api error Throttling: ...", "...
	// StatusCode: 400, TooManyListeners: ...") and of aws-sdk-go ("Throttling: ...\n\tstatus code: 400, ...").
	awsStatus = regexp.MustCompile(`StatusCode: \d|status code: \d|api error `)
	awsCode   = regexp.MustCompile(`\b([A-Z]\w+): `)
	awsAction = regexp.MustCompile(`not authorized to perform: ([\w:*-]+)`)
)

// awsRefusals are what the provider says of a Service before it asks AWS for anything, and the field that has to change.
var awsRefusals = []struct {
	pattern *regexp.Regexp
	field   string
}{
	{regexp.MustCompile(`\b(?:Protocol \w+ not supported by LoadBalancer|mixed protocol is not supported for LoadBalancer)`), "spec.ports"},
	{regexp.MustCompile(`\bunsupported load balancer affinity: `), "spec.sessionAffinity"},
	{regexp.MustCompile(`\bLoadBalancerIP cannot be specified for AWS ELB`), "spec.loadBalancerIP"},
}

// AWS recognises errors of aws-sdk-go-v2 and aws-sdk-go by their codes, as EC2 and Elastic Load Balancing document them, and
// Services that the provider cannot serve by its own words.
func AWS(err error) *fault.Error {
	text := err.Error()
	for _, refusal := range awsRefusals {
		if refusal.pattern.MatchString(text) {
			return fault.UnsupportedFeature(refusal.field, text)
		}
	}
	if !awsStatus.MatchString(text) {
		return nil
	}
	return told(first(words(awsCode, text), func(code string) kind {
		if code == "AuthFailure" && strings.Contains(text, "validate the provided access credentials") {
			return invalid
		}
		return awsMeaning(code)
	}), text, awsAction)
}

func awsMeaning(code string) kind {
	switch code {
	case "Throttling", "ThrottlingException", "ThrottledException", "RequestLimitExceeded", "RequestThrottled",
		"RequestThrottledException", "TooManyRequestsException", "TooManyRequests", "EC2ThrottledException",
		"BandwidthLimitExceeded", "SlowDown":
		return throttling
	case "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "MissingAuthenticationToken",
		"IncompleteSignature", "InvalidAccessKeyId":
		return invalid
	case "ExpiredToken", "ExpiredTokenException", "RequestExpired":
		return expired
	case "AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthFailure", "OptInRequired":
		return denied
	}
	switch {
	case strings.HasSuffix(code, "LimitExceeded"), strings.HasPrefix(code, "TooMany"):
		return quota
	case strings.HasPrefix(code, "Insufficient") && contains(code, "Capacity", "FreeAddresses"):
		return capacity
	}
	return nothing
}
