"""A provider, complete and checked, ready to be served.

In: the provider's properties, and an implementation of each service. Out: a consistent `Provider`, which serves everything
that it advertises. `server` decides how it is served.
"""

import uuid
from collections.abc import Callable, Coroutine, Sequence
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


class Provider:
    """A complete and consistent provider. It serves exactly the services that are passed to it.

    `name` is a DNS subdomain of at most 63 bytes, for example `aws`; provider IDs begin with one of `provider_id_prefixes`, for
    example `aws://`. `capabilities` holds limits, intervals, wanted fields, classes, and capabilities that the methods do not
    show; the SDK adds the others. Without `leadership`, mutations of anybody run: for tests of hosts, and for providers with
    better means of their own. Register metrics of your own on `registry`.

    `while_leading` is background work that writes to the cloud, for each cluster while a host leads it. It starts with each
    term, and is cancelled when the term ends or the process stops, so that exactly one of two replicas runs it at any time.
    If it fails, it starts again after a pause: one second, then twice as long each time, up to a minute.

    Raises `ValueError` that names the mistake: a name that is not a DNS subdomain, a capability without its service,
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
        leadership: bool = True,
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
        answer.capabilities.extend(
            one for one in self._seen(instances, leadership=leadership) if one not in answer.capabilities
        )
        consistency.check(self.info, answer)
        self.advertised = advertise(answer)
        self.lifecycle = Lifecycle(self.service_names)

    @property
    def service_names(self) -> list[str]:
        """The fully qualified names of the contract's services that are served."""
        return [contract.DISCOVERY, contract.CLOUD_PROVIDER, *self.services]

    def set_serving(self, serving: bool, service: str | None = None) -> bool:
        """Set whether the provider, or one service by its fully qualified name, accepts work. False if it is not served.

        Any thread may call it. This is not for a cloud that is down or rejects the credentials: report that as a condition of
        GetStatus.
        """
        return self.lifecycle.set_serving(serving, service)

    def stop(self) -> None:
        """Stop gracefully, like SIGTERM. Any thread may call it, and a signal handler.

        Health turns to NOT_SERVING, streams end, running mutations finish, and leaders are heard to the end.
        """
        self.lifecycle.begin_stop()

    def _seen(self, instances: Instances | None, *, leadership: bool) -> list[pb.Capability.ValueType]:
        """Derive a provider's capabilities from the methods that it implements."""
        seen = [
            capability
            for capability, method in _OPTIONAL.items()
            if instances is not None and getattr(type(instances), method) is not getattr(Instances, method)
        ]
        if contract.LOAD_BALANCERS in self.services:
            seen.append(pb.CAPABILITY_BACKEND_SETS_BY_DIGEST)
        mutates = pb.CAPABILITY_SSH_KEYS in seen or {contract.LOAD_BALANCERS, contract.ROUTES} & self.services.keys()
        return [*seen, pb.CAPABILITY_LEADERSHIP] if leadership and (mutates or self.while_leading) else seen
