"""One mutation at a time for each natural key.

A caller that lost its connection repeats its request while the first one still runs, and a new leader may send another: they
must not interleave in the cloud. In: a mutation. Out: its keys, and what identical ones have in common.
"""

import hashlib
import ipaddress
from typing import Any, NamedTuple

from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.checks import Term


class Subject(NamedTuple):
    """A natural key that a mutation, or one of its items, changes, and the revision of the wanted state."""

    kind: str
    cluster: str
    name: str
    revision: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """The natural key."""
        return self.kind, self.cluster, self.name


def subjects(request: Any) -> list[Subject]:
    """Return what a mutation changes; for a batch, one subject for each item, in their order."""
    cluster = request.cluster.uid
    match request:
        case pb.EnsureLoadBalancerRequest():
            return [Subject("service", cluster, request.service.ref.uid, request.revision)]
        case pb.DeleteLoadBalancerRequest():
            return [Subject("service", cluster, request.service.uid, request.revision)]
        case pb.BatchUpdateLoadBalancersRequest():
            return [Subject("service", cluster, item.service.ref.uid, item.revision) for item in request.items]
        case pb.BatchEnsureRoutesRequest():
            return [Subject("route", cluster, _network(item.destination_cidr)) for item in request.items]
        case pb.BatchDeleteRoutesRequest():
            return [Subject("route", cluster, _network(item.route.destination_cidr)) for item in request.items]
    return []


def _network(cidr: str) -> str:
    """Return a CIDR as a network: CIDRs are never compared as text. The provider refuses a text that is not a CIDR."""
    try:
        return str(ipaddress.ip_network(cidr, strict=False))
    except ValueError:
        return cidr


def fingerprint(request: Any) -> bytes:
    """Return a digest that is equal for identical requests, whichever leader sends them."""
    digest = hashlib.sha256(type(request).__name__.encode())
    for field, value in request.ListFields():
        if field.name == "fencing":
            continue
        # Backends may be thousands: where they have a digest, it stands for them.
        bare = pb.BackendSet(digest=value.digest) if field.name == "backends" and value.digest else value
        part = type(request)(**{field.name: bare})
        digest.update(part.SerializeToString(deterministic=True))
    return digest.digest()


Same = tuple[bytes, Term | None]
"""Identifies identical mutations. Includes the term, since nobody joins a former leader's mutation: it is abandoned."""
