"""Results of one query of BatchGetInstances, in the form that the contract requires."""

from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.errors import ProviderError, to_item


def found(key: str, state: pb.InstanceState.ValueType, instance: pb.Instance) -> pb.InstanceResult:
    """The instance exists; the system of record was read just now."""
    result = _looked(key, state)
    result.instance.CopyFrom(instance)
    return result


def absent(query: pb.InstanceQuery) -> pb.InstanceResult:
    """The provider looked where the instance must be, with permission to see it, and it does not exist.

    If the query has a provider ID, this is evidence for deletion: return `unknown` whenever the lookup failed or was
    incomplete. Without one it is not, since a lookup by name may miss an instance.
    """
    result = absent_by_key(query)
    result.authoritative = bool(query.node.provider_id)
    return result


def absent_by_key(query: pb.InstanceQuery) -> pb.InstanceResult:
    """Like `absent`, for a provider with `CAPABILITY_INSTANCES_KEYED_BY_NAME`: the name alone is evidence."""
    return _looked(query.key, pb.INSTANCE_STATE_ABSENT)


def not_owned(key: str) -> pb.InstanceResult:
    """The instance belongs to another cloud, account or region."""
    return pb.InstanceResult(key=key, state=pb.INSTANCE_STATE_NOT_OWNED)


def unknown(key: str, error: ProviderError) -> pb.InstanceResult:
    """The state of the instance is unknown, with the reason. The other queries of the batch are unaffected."""
    return pb.InstanceResult(key=key, error=to_item(error))


def _looked(key: str, state: pb.InstanceState.ValueType) -> pb.InstanceResult:
    result = pb.InstanceResult(key=key, state=state, authoritative=True)
    result.observed_at.GetCurrentTime()
    return result
