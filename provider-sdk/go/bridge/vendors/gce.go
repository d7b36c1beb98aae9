package vendors

import (
	"regexp"

	"cloudprovider.ccm/sdk/fault"
)

var (
	// gceStatus: "googleapi: Error 403: ..."
	gceStatus = regexp.MustCompile(`googleapi: Error (\d{3})`)
	gceAction = regexp.MustCompile(`Required '([\w.]+)' permission`)
)

// GCE recognises errors of googleapi, which has one status (403) for quotas, throttling and permissions and tells them
// apart by a reason at the end of the text; those of operations; and those of oauth2.
func GCE(err error) *fault.Error {
	text := err.Error()
	status := first(words(gceStatus, text), func(status string) kind {
		return map[string]kind{"401": invalid, "403": denied, "429": throttling}[status]
	})
	switch {
	case contains(text, "RESOURCE_POOL_EXHAUSTED"):
		return told(capacity, text, nil)
	case contains(text, "QUOTA_EXCEEDED", ", quotaExceeded", ", limitExceeded"):
		return told(quota, text, nil)
	case contains(text, ", rateLimitExceeded", ", userRateLimitExceeded", "RATE_LIMIT_EXCEEDED"):
		return told(throttling, text, nil)
	case contains(text, "oauth2: ") && contains(text, "invalid_grant", "invalid_client", "unauthorized_client"):
		return told(invalid, text, nil)
	}
	return told(status, text, gceAction)
}
