"""A provider, complete and checked, ready to be served.

In: what a team says of its provider, and an implementation for each service. Out: a `Provider` that is consistent: what it
advertises it serves. How it is served is decided in `server`.
"""

import uuid
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum, auto
from typing import Any

from prometheus_client import CollectorRegistry

from cloudprovider_sdk import consistency, contract
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.advertised import advertise
from cloudprovider_sdk.gen.ccm.discovery.v1.discovery_pb2 import GetInfoResponse
from cloudprovider_sdk.lifecycle import Lifecycle
from cloudprovider_sdk.services import CloudProvider, Clusters, Instances, LoadBalancers, Routes, Volumes
from cloudprovider_sdk.version import __version__

_OPTIONAL = {
    pb.CAPABILITY_INSTANCES_WATCH: "watch_instances",
    pb.CAPABILITY_INSTANCES_LIST: "list_instances",
    pb.CAPABILITY_SSH_KEYS: "add_ssh_key_to_all_instances",
}


WhileLeading = Callable[[pb.ClusterRef], Coroutine[Any, Any, None]]


class Leaders(Enum):
    """How a provider distinguishes the current leader from former ones."""

    TOLD = auto()
    """By `Lead`: CAPABILITY_LEADERSHIP."""
    COMPARED = auto()
    """By the highest epoch that this process has seen: CAPABILITY_FENCING."""
    IGNORED = auto()
    """Not at all. For tests of hosts, and for providers that have better means than memory."""


class Provider:
    """A complete and consistent provider. It serves exactly the services that it is given.

    `name` is a DNS subdomain of at most 63 bytes, for example `aws`; `provider_id_prefixes` say how provider IDs begin, for
    example `aws://`. `capabilities` tells limits, intervals, wanted fields, classes, and capabilities that cannot be seen
    from methods; what can be seen from methods, and how former `leaders` are refused, is added. Register metrics of your own on
    `registry`.

    `while_leading` is done for each cluster while somebody leads it: background work that writes to the cloud. It begins with
    each term, and is cancelled with its end, or when the process stops; so exactly one of two replicas does it at any time.

    Raises `ValueError`, which names what does not fit: a name that is no DNS subdomain, a capability without its service,
    instances without a provider-ID prefix, a limit or an interval that the contract forbids.
    """

    def __init__(
        self,
        name: str,
        *,
        vendor_version: str = "",
        provider_id_prefixes: Sequence[str] = (),
        capabilities: pb.GetCapabilitiesResponse | None = None,
        status: CloudProvider | None = None,
        instances: Instances | None = None,
        load_balancers: LoadBalancers | None = None,
        routes: Routes | None = None,
        volumes: Volumes | None = None,
        clusters: Clusters | None = None,
        registry: CollectorRegistry | None = None,
        leaders: Leaders = Leaders.TOLD,
        while_leading: WhileLeading | None = None,
        process_epoch: str | None = None,
    ) -> None:
        self.registry = registry or CollectorRegistry()
        self.status = status
        self.while_leading = while_leading
        optional: dict[str, object] = {
            contract.INSTANCES: instances,
            contract.LOAD_BALANCERS: load_balancers,
            contract.ROUTES: routes,
            contract.VOLUMES: volumes,
            contract.CLUSTERS: clusters,
        }
        self.services = {service: given for service, given in optional.items() if given is not None}
        self.info = GetInfoResponse(
            name=name,
            vendor_version=vendor_version,
            sdk_name="cloudprovider-sdk (python)",
            sdk_version=__version__,
            provider_id_prefixes=provider_id_prefixes,
            services=self.service_names,
            process_epoch=str(uuid.uuid4()) if process_epoch is None else process_epoch,
        )
        answer = pb.GetCapabilitiesResponse()
        answer.CopyFrom(capabilities or answer)
        answer.capabilities.extend(one for one in self._seen(instances, leaders) if one not in answer.capabilities)
        consistency.check(self.info, answer)
        self.advertised = advertise(answer)
        self.lifecycle = Lifecycle(self.service_names)

    @property
    def service_names(self) -> list[str]:
        """Fully qualified names of the contract's services that are served."""
        return [contract.DISCOVERY, contract.CLOUD_PROVIDER, *self.services]

    def set_serving(self, serving: bool, service: str | None = None) -> bool:
        """Set whether the provider, or one service by its fully qualified name, accepts work. False if it is not served.

        A cloud that is down or refuses credentials is a condition of GetStatus, not a reason for this.
        """
        return self.lifecycle.set_serving(serving, service)

    def stop(self) -> None:
        """Stop gracefully, like SIGTERM: health turns to not serving, streams end, running mutations finish."""
        self.lifecycle.begin_stop()

    def _seen(self, instances: Instances | None, leaders: Leaders) -> list[pb.Capability.ValueType]:
        """Derive a provider's capabilities from what it implements."""
        seen = [
            capability
            for capability, method in _OPTIONAL.items()
            if instances is not None and getattr(type(instances), method) is not getattr(Instances, method)
        ]
        if contract.LOAD_BALANCERS in self.services:
            seen.append(pb.CAPABILITY_BACKEND_SETS_BY_DIGEST)
        mutates = pb.CAPABILITY_SSH_KEYS in seen or {contract.LOAD_BALANCERS, contract.ROUTES} & self.services.keys()
        if leaders is Leaders.TOLD and (mutates or self.while_leading):
            return [*seen, pb.CAPABILITY_LEADERSHIP]
        return [*seen, pb.CAPABILITY_FENCING] if leaders is Leaders.COMPARED and mutates else seen
