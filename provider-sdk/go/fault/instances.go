package fault

import (
	"fmt"
	"time"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// InstanceNotFound means that a call about a single object refers to an instance that does not exist, for example a
// route's target.
func InstanceNotFound(instance string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_INSTANCE_NOT_FOUND, fmt.Sprintf("instance %q does not exist", instance))
}

// MetadataNotReady means that the instance exists but cannot be described yet: the error next to state RUNNING, PENDING
// or EXISTS.
func MetadataNotReady(retryAfter time.Duration) *Error {
	return New(pb.ErrorReason_ERROR_REASON_METADATA_NOT_READY, "the instance cannot be described yet",
		WithRetryAfter(retryAfter))
}

// LocationUnreachable means that a region, zone or account could not be queried.
func LocationUnreachable(location string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_LOCATION_UNREACHABLE, fmt.Sprintf("location %q could not be queried", location))
}

// InstanceAmbiguous means that more than one instance matches the node.
func InstanceAmbiguous(node string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_INSTANCE_AMBIGUOUS,
		fmt.Sprintf("node %q is claimed by more than one instance", node))
}

// InvalidSSHKey means that the text is not an SSH public key, or its type is not accepted.
func InvalidSSHKey(why string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_INVALID_SSH_KEY, why)
}

// VolumeNotFound means that the volume does not exist.
func VolumeNotFound(volume string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_VOLUME_NOT_FOUND, fmt.Sprintf("volume %q does not exist", volume))
}

// ClusterNotFound means that the named cluster does not exist in the cloud.
func ClusterNotFound(name string) *Error {
	return New(pb.ErrorReason_ERROR_REASON_CLUSTER_NOT_FOUND, fmt.Sprintf("cluster %q does not exist", name))
}
