// Package vendors recognises errors of clouds' Go libraries that the host treats in a way of its own: throttling, quotas,
// lack of capacity, credentials, permissions; of AWS's provider also what it never serves. All other errors are nobody's.
//
// In: an error as a provider returns it. Out: an error of the contract with the same text, or nil. Providers often wrap
// such errors without a chain ("%v", "%q"), so the text decides; no cloud's library is linked. What a failing cloud means
// for destructive work, the bridge decides from many answers.
package vendors

import (
	"regexp"
	"strings"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// throttled is how long to pause when a cloud throttles without saying for how long.
const throttled = 5 * time.Second

// For returns the mapping for the provider of this name (ProviderName), nil if there is none.
func For(provider string) func(error) *fault.Error {
	return map[string]func(error) *fault.Error{"aws": AWS, "azure": Azure, "gce": GCE, "openstack": OpenStack}[provider]
}

// kind is what an error means to the host.
type kind = pb.ErrorReason

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

// told makes the error of the contract. `action` finds what is not permitted.
func told(kind kind, text string, action *regexp.Regexp) *fault.Error {
	switch kind {
	case nothing:
		return nil
	case throttling:
		return fault.New(kind, text, fault.WithRetryAfter(throttled))
	case quota:
		return fault.New(kind, text, fault.WithQuota("the account", text))
	case denied:
		if found := action.FindStringSubmatch(text); found != nil {
			return fault.New(kind, text, fault.WithMetadata("action", found[1]))
		}
	}
	return fault.New(kind, text)
}

// first returns the first meaning that one of the words has.
func first(words []string, meaning func(word string) kind) kind {
	for _, word := range words {
		if kind := meaning(word); kind != nothing {
			return kind
		}
	}
	return nothing
}

// words returns the first groups of all matches.
func words(pattern *regexp.Regexp, text string) (all []string) {
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		all = append(all, match[1])
	}
	return all
}

func contains(text string, phrases ...string) bool {
	for _, phrase := range phrases {
		if strings.Contains(text, phrase) {
			return true
		}
	}
	return false
}
