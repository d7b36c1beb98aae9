"""Chooses the address of a Service."""

import ipaddress
from collections.abc import Iterator
from typing import Any

from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb

from inventory import Network


def check(service: pb.Service) -> None:
    """Refuse Services that this provider cannot serve, before anything changes."""
    if service.ip_family_policy == pb.IP_FAMILY_POLICY_REQUIRE_DUAL_STACK:
        raise errors.unsupported_feature("spec.ipFamilyPolicy", "a balancer has one address, of one family")
    if any(port.node_port == 0 for port in service.ports):
        raise errors.unsupported_feature("spec.allocateLoadBalancerNodePorts", "the pods are reached by node ports")
    for at, port in enumerate(service.ports):
        if port.protocol == pb.PROTOCOL_UNSPECIFIED:
            raise errors.unsupported_feature(f"spec.ports[{at}].protocol", "this provider does not know the protocol")


def asked(service: pb.Service) -> dict[str, Any]:
    """Return the parts of the Service that the announcing software needs."""
    local = service.external_traffic_policy == pb.TRAFFIC_POLICY_LOCAL
    name = pb.Protocol.Name
    return {
        "ports": [[name(one.protocol).removeprefix("PROTOCOL_"), one.port, one.node_port] for one in service.ports],
        "source_ranges": list(service.source_ranges),
        "health_check_port": service.health_check_node_port if local else 0,
        "client_ip_affinity_seconds": service.client_ip_affinity.seconds,
    }


def version_of(service: pb.Service) -> int:
    """Return the IP version of the balancer's only address."""
    return 6 if service.ip_families[:1] == [pb.IP_FAMILY_IPV6] else 4


def keeps(service: pb.Service, address: str) -> bool:
    """Whether the Service keeps its address: even if the pools have changed, unless it asks for another address or family."""
    same = ipaddress.ip_address(address).version == version_of(service)
    return same and _canonical(service.load_balancer_ip) in ("", address)


def choose(service: pb.Service, pools: list[Network], taken: set[str]) -> str:
    """Return the address that the Service asks for, else that in its status, should the allocations be lost, else any."""
    version = version_of(service)
    pools = [pool for pool in pools if pool.version == version]
    if wanted := _canonical(service.load_balancer_ip):
        if wanted in taken or not _inside(wanted, pools):
            raise errors.invalid_configuration("spec.loadBalancerIP", f"{wanted} is taken, or in no pool")
        return wanted
    for address in _candidates(service, pools):
        if address not in taken:
            return address
    raise errors.quota_exceeded("the inventory's pools", f"IPv{version} addresses")


def _candidates(service: pb.Service, pools: list[Network]) -> Iterator[str]:
    yield from (_canonical(ingress.ip) for ingress in service.ingress if _inside(ingress.ip, pools))
    yield from (str(host) for pool in pools for host in pool.hosts())


def _canonical(text: str) -> str:
    """Return an address in the form in which allocations are kept; other texts as they are."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text


def _inside(text: str, pools: list[Network]) -> bool:
    try:
        return any(ipaddress.ip_address(text) in pool for pool in pools)
    except ValueError:
        return False
