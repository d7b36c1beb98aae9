package fault

import (
	"fmt"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// ConcurrentOperation means that a conflicting operation on the same object is running.
func ConcurrentOperation(object string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_CONCURRENT_OPERATION,
		fmt.Sprintf("another operation on %q is under way", object))
}

// OwnedByOtherCluster means that a resource with this natural key belongs to another cluster.
func OwnedByOtherCluster(resource string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_OWNED_BY_OTHER_CLUSTER,
		fmt.Sprintf("%q belongs to another cluster", resource))
}

// AdoptionRefused means that a former controller's resource exists, and the request does not allow adoption.
func AdoptionRefused(resource string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_ADOPTION_REFUSED,
		fmt.Sprintf("%q was created by a former controller", resource))
}

// StaleRevision means that a newer revision of this object has already been accepted.
func StaleRevision(object string, options ...Option) *Error {
	return New(pb.ErrorReason_ERROR_REASON_STALE_REVISION,
		fmt.Sprintf("a newer revision of %q was accepted", object), options...)
}

// NeedsEnsure means that a load balancer is absent or must be rebuilt: an item error of an update.
func NeedsEnsure(object string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_NEEDS_ENSURE, fmt.Sprintf("the balancer of %q must be ensured", object))
}

// UnknownBackendSet means that the request refers to its backend set by this unknown digest. The SDK returns it by itself.
func UnknownBackendSet(digest string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_UNKNOWN_BACKEND_SET, "the digest of the backend set is unknown",
		WithMetadata("digest", digest))
}

// RouteChanged means that the route's target has changed since it was listed: an item error.
func RouteChanged(route string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_ROUTE_CHANGED, fmt.Sprintf("route %q changed since it was listed", route))
}

// RouteTableFull means that the cloud's route tables are full.
func RouteTableFull(table string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_ROUTE_TABLE_FULL, fmt.Sprintf("route table %q is full", table))
}

// StaleLeader means that the caller is a former leader.
func StaleLeader(scope string, options ...Option) *Error {
	return New(pb.ErrorReason_ERROR_REASON_STALE_LEADER,
		fmt.Sprintf("the caller does not lead by lease %q", scope), options...)
}
