"""Serves the provider's identity, capabilities and status."""

import logging
from collections.abc import Callable

from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.call import Call
from cloudprovider_sdk.gen.ccm.discovery.v1 import discovery_pb2
from cloudprovider_sdk.provider import Provider

_log = logging.getLogger("cloudprovider_sdk")


class Discovery:
    """Serves `ccm.discovery.v1.Discovery`. `beside` names the served services that are not part of the contract."""

    def __init__(self, provider: Provider, beside: list[str]) -> None:
        self._info = discovery_pb2.GetInfoResponse()
        self._info.CopyFrom(provider.info)
        self._info.services.extend(beside)

    async def get_info(self, _: Call, host: discovery_pb2.GetInfoRequest) -> discovery_pb2.GetInfoResponse:
        """Return the provider's identity."""
        _log.debug("a host connected", extra={"host": host.host_name, "host_version": host.host_version})
        return self._info


class Base:
    """Serves `CloudProvider`: capabilities and `Lead` without the provider's help, its status if it implements one."""

    def __init__(self, provider: Provider, heard: Callable[[pb.LeadRequest], pb.LeadResponse]) -> None:
        self._provider = provider
        self._heard = heard

    async def get_capabilities(self, _: Call, __: pb.GetCapabilitiesRequest) -> pb.GetCapabilitiesResponse:
        """Return the capabilities, which are constant."""
        return self._provider.advertised.answer

    async def get_status(self, call: Call, _: pb.GetStatusRequest) -> pb.GetStatusResponse:
        """Return the provider's conditions; none if it reports no status."""
        if self._provider.status is None:
            return pb.GetStatusResponse()
        return await self._provider.status.get_status(call)

    async def lead(self, _: Call, request: pb.LeadRequest) -> pb.LeadResponse:
        """Record who leads."""
        if pb.CAPABILITY_LEADERSHIP not in self._provider.advertised.capabilities:
            raise errors.method_not_supported("Lead")
        return self._heard(request)
