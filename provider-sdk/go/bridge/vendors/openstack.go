package vendors

import (
	"regexp"
	"strings"

	"cloudprovider.ccm/sdk/fault"
)

var (
	// openStackStatus: "Expected HTTP response code [200] when accessing [GET ...], but got 409 instead".
	openStackStatus = regexp.MustCompile(`but got (\d{3}) instead`)
	openStackAction = regexp.MustCompile(`rule:(\S+) is disallowed`)
)

// OpenStack recognises errors of gophercloud by status, and what Neutron, Octavia and Nova say with 403 and 409.
func OpenStack(err error) *fault.Error {
	text := err.Error()
	lower := strings.ToLower(text)
	status := first(words(openStackStatus, text), func(status string) kind {
		return map[string]kind{"401": invalid, "403": denied, "429": throttling, "409": busy}[status]
	})
	switch {
	case contains(text, "Request forbidden: "):
		status = denied
	case contains(text, "Too many requests have been sent"):
		status = throttling
	case strings.HasSuffix(text, "Authentication failed"):
		status = invalid
	}
	switch {
	case status != busy && status != denied:
	case contains(lower, "overquota", "quota exceeded", "quota has been met"):
		status = quota
	case status == busy && !contains(lower, "is immutable and cannot be updated"):
		status = nothing // Any other conflict needs somebody's attention.
	}
	return told(status, text, openStackAction)
}
