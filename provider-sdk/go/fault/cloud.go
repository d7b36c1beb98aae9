package fault

import (
	"fmt"
	"time"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// RateLimited means that the cloud throttles; retry after this long. All reads, or all mutations, pause, unless
// WithMetadata("scope", "LoadBalancers") names the services that share the quota.
func RateLimited(retryAfter time.Duration, options ...Option) *Error {
	return New(pb.ErrorReason_ERROR_REASON_RATE_LIMITED, "the cloud throttles", append(options, WithRetryAfter(retryAfter))...)
}

// QuotaExceeded means that a quota is exhausted: its subject (an account, a region), and what it limits.
func QuotaExceeded(subject, what string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_QUOTA_EXCEEDED,
		fmt.Sprintf("quota of %s is exhausted: %s", subject, what), WithQuota(subject, what))
}

// CapacityUnavailable means that the cloud is out of capacity.
func CapacityUnavailable(what string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_CAPACITY_UNAVAILABLE, fmt.Sprintf("the cloud has no %s left", what))
}

// RetryLater means a temporary failure; retry after exactly this long.
func RetryLater(retryAfter time.Duration, why string, options ...Option) *Error {
	return New(pb.ErrorReason_ERROR_REASON_RETRY_LATER, why, append(options, WithRetryAfter(retryAfter))...)
}

// Overloaded means that the provider itself is overloaded.
func Overloaded(retryAfter time.Duration) *Error {
	return New(pb.ErrorReason_ERROR_REASON_PROVIDER_OVERLOADED, "the provider is overloaded",
		WithRetryAfter(retryAfter))
}

// CloudCredentialsInvalid means that the cloud rejects the provider's credentials.
func CloudCredentialsInvalid() *Error {
	return New(pb.ErrorReason_ERROR_REASON_CLOUD_CREDENTIALS_INVALID, "the cloud rejects the provider's credentials")
}

// CloudCredentialsExpired means that the provider's credentials have expired.
func CloudCredentialsExpired() *Error {
	return New(pb.ErrorReason_ERROR_REASON_CLOUD_CREDENTIALS_EXPIRED, "the provider's credentials have expired")
}

// CloudPermissionDenied means that the credentials are valid but lack a permission: the cloud's name of the action.
func CloudPermissionDenied(action string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_CLOUD_PERMISSION_DENIED,
		fmt.Sprintf("the provider may not %s", action), WithMetadata("action", action))
}

// InvalidProviderConfig means that the provider's own configuration is invalid.
func InvalidProviderConfig(why string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_INVALID_PROVIDER_CONFIG, why)
}

// CloudAPIUnavailable means that the cloud's API is down.
func CloudAPIUnavailable(options ...Option) *Error {
	return New(pb.ErrorReason_ERROR_REASON_CLOUD_API_UNAVAILABLE, "the cloud's API does not answer", options...)
}

// PeerNotTrusted means that the provider does not trust the peer.
func PeerNotTrusted(why string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_PEER_NOT_TRUSTED, why)
}

// ShuttingDown means that the provider is stopping.
func ShuttingDown() *Error {
	return New(pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN, "the provider is stopping")
}

// Internal means a bug in the provider. The cause is logged here; the caller does not see it.
func Internal(cause error, options ...Option) *Error {
	return New(pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, "internal error; see the provider's log",
		append(options, WithCause(cause))...)
}
