package vendors

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"cloudprovider.ccm/sdk/fault"
)

var (
	// azureCode: "ERROR CODE: QuotaExceeded" of azcore.ResponseError, `Code="QuotaExceeded"` of autorest, and
	// `"code": "QuotaExceeded"` of the bodies that both quote.
	azureCode = regexp.MustCompile(`(?:ERROR CODE: |Code=\\?"|\\?"code\\?":\s*\\?")(\w+)`)
	// azureStatus: "RESPONSE 429: ..." of azcore, "HTTPStatusCode: 429" of cloud-provider-azure, "StatusCode=429" of autorest.
	azureStatus = regexp.MustCompile(`(?:RESPONSE |HTTPStatusCode: |StatusCode=)(\d{3})`)
	// azureLogin: codes of the login service, as azidentity quotes them.
	azureLogin  = regexp.MustCompile(`(AADSTS\d+)`)
	azureAfter  = regexp.MustCompile(`RetryAfter: (\d+)s`)
	azureAction = regexp.MustCompile(`perform action '([^']+)'`)
)

// Azure recognises errors of azcore, azidentity, and cloud-provider-azure's own type by code and status.
func Azure(err error) *fault.Error {
	text := err.Error()
	meant := first(words(azureLogin, text), azureLoginMeaning)
	if meant == nothing {
		meant = first(words(azureCode, text), func(code string) kind { return azureMeaning(code, text) })
	}
	if meant == nothing {
		meant = first(words(azureStatus, text), func(status string) kind {
			return map[string]kind{"401": invalid, "403": denied, "429": throttling}[status]
		})
	}
	found := told(meant, text, azureAction)
	if after := azureAfter.FindStringSubmatch(text); meant == throttling && after != nil {
		if seconds, err := strconv.Atoi(after[1]); err == nil && seconds > 0 {
			return found.With(fault.WithRetryAfter(time.Duration(seconds) * time.Second))
		}
	}
	return found
}

func azureLoginMeaning(code string) kind {
	if code == "AADSTS7000222" { // The secret's or the certificate's time is over.
		return expired
	}
	return invalid
}

func azureMeaning(code, text string) kind {
	switch code {
	case "TooManyRequests", "OperationNotAllowed", "SubscriptionRequestsThrottled", "ResourceRequestsThrottled", "ServerBusy":
		if strings.Contains(strings.ToLower(text), "quota") {
			return quota
		}
		if code == "OperationNotAllowed" {
			return nothing
		}
		return throttling
	case "ExpiredAuthenticationToken":
		return expired
	case "InvalidAuthenticationToken", "AuthenticationFailed", "InvalidAuthenticationTokenTenant":
		return invalid
	case "AuthorizationFailed", "LinkedAuthorizationFailed":
		return denied
	case "SkuNotAvailable", "AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest":
		return capacity
	case "AnotherOperationInProgress", "RetryableErrorDueToAnotherOperation":
		return busy
	}
	if strings.HasSuffix(code, "QuotaExceeded") || strings.HasSuffix(code, "LimitReached") || strings.HasSuffix(code, "LimitExceeded") {
		return quota
	}
	return nothing
}
