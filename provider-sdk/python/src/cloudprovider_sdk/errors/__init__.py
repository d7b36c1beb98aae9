"""The error of a provider: a reason of the contract, with its details.

One function for each condition requires every detail that the contract asks for. Raise the error that it returns, and keep
the cause with `from`: it is logged, but never leaves the process. The gRPC code, `ErrorInfo`, `RetryInfo` and the size limits
follow from the error.

    raise errors.rate_limited(retry_after=30) from cause
"""

import json

from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.errors.provider_error import ProviderError as ProviderError
from cloudprovider_sdk.errors.table import code_of as code_of
from cloudprovider_sdk.errors.wire import from_call as from_call
from cloudprovider_sdk.errors.wire import to_item as to_item


def _quote(name: str) -> str:
    return json.dumps(name)


# Instances.


def instance_not_found(instance: str) -> ProviderError:
    """A call about a single object refers to an instance that does not exist, for example a route's target."""
    return ProviderError(pb.ERROR_REASON_INSTANCE_NOT_FOUND, f"instance {_quote(instance)} does not exist")


def metadata_not_ready(retry_after: float) -> ProviderError:
    """The instance exists but cannot be described yet: the error next to state RUNNING, PENDING or EXISTS."""
    message = "the instance cannot be described yet"
    return ProviderError(pb.ERROR_REASON_METADATA_NOT_READY, message, retry_after=retry_after)


def location_unreachable(location: str) -> ProviderError:
    """A region, zone or account could not be queried."""
    return ProviderError(pb.ERROR_REASON_LOCATION_UNREACHABLE, f"location {_quote(location)} could not be queried")


def instance_ambiguous(node: str) -> ProviderError:
    """More than one instance matches the node."""
    message = f"node {_quote(node)} is claimed by more than one instance"
    return ProviderError(pb.ERROR_REASON_INSTANCE_AMBIGUOUS, message)


def invalid_ssh_key(why: str) -> ProviderError:
    """The text is not an SSH public key, or its type is not accepted."""
    return ProviderError(pb.ERROR_REASON_INVALID_SSH_KEY, why)


# The request.


def method_not_supported(method: str) -> ProviderError:
    """The provider does not serve the RPC."""
    return ProviderError(pb.ERROR_REASON_METHOD_NOT_SUPPORTED, f"{method} is not served")


def unsupported_feature(field: str, why: str) -> ProviderError:
    """The provider serves the RPC, but not this field or value of it."""
    return ProviderError(pb.ERROR_REASON_UNSUPPORTED_FEATURE, why, fields=((field, why),))


def implemented_elsewhere(who: str) -> ProviderError:
    """Another controller serves this Service."""
    return ProviderError(pb.ERROR_REASON_IMPLEMENTED_ELSEWHERE, f"{who} serves this Service")


def invalid_configuration(field: str, why: str) -> ProviderError:
    """The user's Service or its annotations are invalid; `field` is a Kubernetes field path."""
    return ProviderError(pb.ERROR_REASON_INVALID_CONFIGURATION, f"{field}: {why}", fields=((field, why),))


def invalid_argument_shape(field: str, why: str) -> ProviderError:
    """The request violates the contract; `field` is a path in the request."""
    return ProviderError(pb.ERROR_REASON_INVALID_ARGUMENT_SHAPE, f"{field} {why}", fields=((field, why),))


def batch_too_large(items: int, most: int) -> ProviderError:
    """More items than advertised."""
    metadata = {"max": str(most), "items": str(items)}
    return ProviderError(pb.ERROR_REASON_BATCH_TOO_LARGE, f"more than {most} items", metadata=metadata)


def invalid_token() -> ProviderError:
    """The token was never issued in this process epoch."""
    return ProviderError(pb.ERROR_REASON_INVALID_TOKEN, "the token was not issued by this process")


def resume_token_expired() -> ProviderError:
    """The resume token has expired."""
    return ProviderError(pb.ERROR_REASON_RESUME_TOKEN_EXPIRED, "the resume token has expired")


# Retry later.


def rate_limited(retry_after: float, *, scope: str = "") -> ProviderError:
    """The cloud throttles; retry after this many seconds.

    All reads, or all mutations, pause, unless `scope` names the services that share the quota: "LoadBalancers,Routes".
    """
    metadata = {"scope": scope} if scope else {}
    return ProviderError(pb.ERROR_REASON_RATE_LIMITED, "the cloud throttles", retry_after=retry_after, metadata=metadata)


def quota_exceeded(subject: str, what: str) -> ProviderError:
    """A quota is exhausted: its subject (an account, a region), and what it limits."""
    message = f"quota of {subject} is exhausted: {what}"
    return ProviderError(pb.ERROR_REASON_QUOTA_EXCEEDED, message, quotas=((subject, what),))


def capacity_unavailable(what: str) -> ProviderError:
    """The cloud is out of capacity."""
    return ProviderError(pb.ERROR_REASON_CAPACITY_UNAVAILABLE, f"the cloud has no {what} left")


def retry_later(retry_after: float, why: str) -> ProviderError:
    """A temporary failure; retry after exactly this many seconds."""
    return ProviderError(pb.ERROR_REASON_RETRY_LATER, why, retry_after=retry_after)


def overloaded(retry_after: float) -> ProviderError:
    """The provider itself is overloaded."""
    message = "the provider is overloaded"
    return ProviderError(pb.ERROR_REASON_PROVIDER_OVERLOADED, message, retry_after=retry_after)


def route_table_full(table: str) -> ProviderError:
    """The cloud's route tables are full."""
    return ProviderError(pb.ERROR_REASON_ROUTE_TABLE_FULL, f"route table {_quote(table)} is full")


# Conflicts.


def concurrent_operation(what: str) -> ProviderError:
    """A conflicting operation on the same object is running."""
    return ProviderError(pb.ERROR_REASON_CONCURRENT_OPERATION, f"another operation on {_quote(what)} is under way")


def owned_by_other_cluster(resource: str) -> ProviderError:
    """A resource with this natural key belongs to another cluster."""
    return ProviderError(pb.ERROR_REASON_OWNED_BY_OTHER_CLUSTER, f"{_quote(resource)} belongs to another cluster")


def adoption_refused(resource: str) -> ProviderError:
    """A former controller's resource exists, and the request does not allow adoption."""
    return ProviderError(pb.ERROR_REASON_ADOPTION_REFUSED, f"{_quote(resource)} was created by a former controller")


def stale_revision(what: str, *, revision: int, accepted: int) -> ProviderError:
    """A newer revision of this object has already been accepted."""
    message = f"a newer revision of {_quote(what)} was accepted"
    metadata = {"revision": str(revision), "accepted": str(accepted)}
    return ProviderError(pb.ERROR_REASON_STALE_REVISION, message, metadata=metadata)


def needs_ensure(what: str) -> ProviderError:
    """An update of a load balancer that is absent or must be rebuilt: an item error."""
    return ProviderError(pb.ERROR_REASON_NEEDS_ENSURE, f"the balancer of {_quote(what)} must be ensured")


def unknown_backend_set(digest: str) -> ProviderError:
    """The request refers to its backend set by this unknown digest. The SDK raises this error itself."""
    message = "the digest of the backend set is unknown"
    return ProviderError(pb.ERROR_REASON_UNKNOWN_BACKEND_SET, message, metadata={"digest": digest})


def route_changed(route: str) -> ProviderError:
    """The route's target has changed since it was listed: an item error."""
    return ProviderError(pb.ERROR_REASON_ROUTE_CHANGED, f"route {_quote(route)} changed since it was listed")


def stale_leader(scope: str, *, epoch: int, highest: int) -> ProviderError:
    """The caller is a former leader."""
    message = f"the caller does not lead by lease {_quote(scope)}"
    metadata = {"epoch": str(epoch), "highest": str(highest)}
    return ProviderError(pb.ERROR_REASON_STALE_LEADER, message, metadata=metadata)


# Permissions, and the cloud itself.


def cloud_credentials_invalid() -> ProviderError:
    """The cloud rejects the provider's credentials."""
    return ProviderError(pb.ERROR_REASON_CLOUD_CREDENTIALS_INVALID, "the cloud rejects the provider's credentials")


def cloud_credentials_expired() -> ProviderError:
    """The provider's credentials have expired."""
    return ProviderError(pb.ERROR_REASON_CLOUD_CREDENTIALS_EXPIRED, "the provider's credentials have expired")


def cloud_permission_denied(action: str) -> ProviderError:
    """The credentials are valid but lack a permission: the cloud's name of the action."""
    message, metadata = f"the provider may not {action}", {"action": action}
    return ProviderError(pb.ERROR_REASON_CLOUD_PERMISSION_DENIED, message, metadata=metadata)


def invalid_provider_config(why: str) -> ProviderError:
    """The provider's own configuration is invalid."""
    return ProviderError(pb.ERROR_REASON_INVALID_PROVIDER_CONFIG, why)


def cloud_api_unavailable(why: str = "the cloud's API does not answer") -> ProviderError:
    """The cloud's API, or its replacement, is down."""
    return ProviderError(pb.ERROR_REASON_CLOUD_API_UNAVAILABLE, why)


def shutting_down() -> ProviderError:
    """The provider is stopping."""
    return ProviderError(pb.ERROR_REASON_SHUTTING_DOWN, "the provider is stopping")


def internal(**metadata: str) -> ProviderError:
    """A bug in the provider. Give its cause with `from`: it is logged, and the caller does not see it."""
    message = "internal error; see the provider's log"
    return ProviderError(pb.ERROR_REASON_INTERNAL_ERROR, message, metadata=metadata)


def volume_not_found(volume: str) -> ProviderError:
    """The volume does not exist."""
    return ProviderError(pb.ERROR_REASON_VOLUME_NOT_FOUND, f"volume {_quote(volume)} does not exist")


def cluster_not_found(name: str) -> ProviderError:
    """The named cluster does not exist in the cloud."""
    return ProviderError(pb.ERROR_REASON_CLUSTER_NOT_FOUND, f"cluster {_quote(name)} does not exist")
