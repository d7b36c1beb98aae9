package fault

import (
	"fmt"
	"time"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// RateLimited says that the cloud throttles; come back after this long.
func RateLimited(retryAfter time.Duration) *Error {
	return New(pb.ErrorReason_ERROR_REASON_RATE_LIMITED, "the cloud throttles", WithRetryAfter(retryAfter))
}

// QuotaExceeded says that a quota is used up: its subject (an account, a region), and what it counts.
func QuotaExceeded(subject, what string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_QUOTA_EXCEEDED,
		fmt.Sprintf("quota of %s is used up: %s", subject, what), WithQuota(subject, what))
}

// CapacityUnavailable says that the cloud has none left to give.
func CapacityUnavailable(what string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_CAPACITY_UNAVAILABLE, fmt.Sprintf("the cloud has no %s left", what))
}

// RetryLater says that it fails for now; come back after exactly this long.
func RetryLater(retryAfter time.Duration, why string, options ...Option) *Error {
	return New(pb.ErrorReason_ERROR_REASON_RETRY_LATER, why, append(options, WithRetryAfter(retryAfter))...)
}

// Overloaded says that the provider itself has too much to do.
func Overloaded(retryAfter time.Duration) *Error {
	return New(pb.ErrorReason_ERROR_REASON_PROVIDER_OVERLOADED, "the provider has too much to do",
		WithRetryAfter(retryAfter))
}

// CloudCredentialsInvalid says that the cloud refuses the provider's credentials.
func CloudCredentialsInvalid() *Error {
	return New(pb.ErrorReason_ERROR_REASON_CLOUD_CREDENTIALS_INVALID, "the cloud refuses the provider's credentials")
}

// CloudCredentialsExpired says that the provider's credentials ran out.
func CloudCredentialsExpired() *Error {
	return New(pb.ErrorReason_ERROR_REASON_CLOUD_CREDENTIALS_EXPIRED, "the provider's credentials ran out")
}

// CloudPermissionDenied says that the credentials are good, but a right is missing: the cloud's name of the action.
func CloudPermissionDenied(action string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_CLOUD_PERMISSION_DENIED,
		fmt.Sprintf("the provider may not %s", action), WithMetadata("action", action))
}

// InvalidProviderConfig says that the provider's own configuration is bad.
func InvalidProviderConfig(why string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_INVALID_PROVIDER_CONFIG, why)
}

// CloudAPIUnavailable says that the cloud's API is down.
func CloudAPIUnavailable(options ...Option) *Error {
	return New(pb.ErrorReason_ERROR_REASON_CLOUD_API_UNAVAILABLE, "the cloud's API does not answer", options...)
}

// PeerNotTrusted says that the provider does not trust the peer.
func PeerNotTrusted(why string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_PEER_NOT_TRUSTED, why)
}

// ShuttingDown says that the provider is stopping.
func ShuttingDown() *Error {
	return New(pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN, "the provider is stopping")
}

// Internal says that the provider has a defect. The cause is logged here; the caller learns nothing of it.
func Internal(cause error, options ...Option) *Error {
	return New(pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, "internal error; the provider's log says more",
		append(options, WithCause(cause))...)
}
