"""Calls the inventory provider over its socket, as a host would."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from cloudprovider_sdk import Endpoint, ProviderError, ServeOptions, Server, errors
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.cloud_provider_pb2_grpc import CloudProviderStub
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.instances_pb2_grpc import InstancesStub
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.load_balancers_pb2_grpc import LoadBalancersStub

from inventory import Contents
from provider import parser, provider

MACHINES = """
machines:
  - {name: node-1, id: rack-1-u4, system_uuid: uuid-1, zone: rack-1, type: r640, internal_ips: [10.0.0.1], labels: {disk: ssd}}
  - {name: node-2, state: stopped, internal_ips: [10.0.0.2, "fd00::2"], external_ips: [192.0.2.9]}
pools: [198.51.100.0/30, "2001:db8::/126"]
...
"""
CLUSTER = pb.ClusterRef(uid="cluster-1")


class There:
    def __init__(self, directory: Path) -> None:
        self.file, self.allocations = directory / "machines.yaml", directory / "state" / "allocations.json"
        self.allocations.parent.mkdir(exist_ok=True)
        self.write(MACHINES)

    def write(self, text: str) -> None:
        self.file.with_suffix(".new").write_text(text)
        self.file.with_suffix(".new").replace(self.file)

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[grpc.aio.Channel]:
        socket = self.file.parent / "ccm" / "provider.sock"
        made = provider(parser().parse_args([f"--inventory={self.file}", f"--allocations={self.allocations}"]))
        running = asyncio.create_task(Server(made, ServeOptions(endpoint=Endpoint(path=socket))).run(signals=False))
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"unix:{socket}", options) as channel:
            yield channel
        made.stop()
        await running


@pytest.fixture
def there(tmp_path: Path) -> There:
    return There(tmp_path)


def nodes(*refs: pb.NodeRef) -> pb.BatchGetInstancesRequest:
    queries = [pb.InstanceQuery(key=str(at), node=ref) for at, ref in enumerate(refs)]
    return pb.BatchGetInstancesRequest(cluster=CLUSTER, queries=queries)


async def refused(call: Any) -> ProviderError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    error = errors.from_call(raised.value)
    assert error is not None
    return error


async def test_without_allocations_it_serves_nodes_alone(there: There) -> None:
    """D1: what a team with bare metal begins with."""
    made = provider(parser().parse_args([f"--inventory={there.file}"]))
    assert [name.rpartition(".")[2] for name in made.services] == ["Instances"]


async def test_a_node_is_found_by_provider_id_then_system_uuid_then_name(there: There) -> None:
    async with there.served() as channel:
        answer = await InstancesStub(channel).BatchGetInstances(
            nodes(
                pb.NodeRef(name="renamed", provider_id="inventory://rack-1-u4"),
                pb.NodeRef(name="node-2", system_uuid="uuid-1"),
                pb.NodeRef(name="node-2"),
                pb.NodeRef(name="node-1", provider_id="inventory://node-1"),
                pb.NodeRef(name="node-1", provider_id="aws:///i-1"),
                pb.NodeRef(name="node-3"),
            )
        )
    states = [(one.state, one.authoritative, one.instance.provider_id) for one in answer.results]
    assert states == [
        (pb.INSTANCE_STATE_RUNNING, True, "inventory://rack-1-u4"),
        (pb.INSTANCE_STATE_RUNNING, True, "inventory://rack-1-u4"),
        (pb.INSTANCE_STATE_STOPPED, True, "inventory://node-2"),
        (pb.INSTANCE_STATE_ABSENT, True, ""),
        (pb.INSTANCE_STATE_NOT_OWNED, False, ""),
        (pb.INSTANCE_STATE_ABSENT, False, ""),  # A lookup by name alone may miss an instance.
    ]
    instance = answer.results[0].instance
    assert (instance.zone, instance.instance_type, dict(instance.labels)) == ("rack-1", "r640", {"disk": "ssd"})
    addresses = [(one.type, one.address) for one in answer.results[2].instance.addresses]
    assert addresses == [
        (pb.NODE_ADDRESS_TYPE_INTERNAL_IP, "10.0.0.2"),
        (pb.NODE_ADDRESS_TYPE_INTERNAL_IP, "fd00::2"),
        (pb.NODE_ADDRESS_TYPE_EXTERNAL_IP, "192.0.2.9"),
        (pb.NODE_ADDRESS_TYPE_HOSTNAME, "node-2"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n...\n",
        "machines: []\n...\n",
        MACHINES.partition("pools")[0],
        MACHINES.replace("zone", "zoone"),
        MACHINES.replace("stopped", "off"),
        MACHINES.replace("10.0.0.1]", "10.0.0]"),
        MACHINES.replace("node-2", "node-1"),
        MACHINES.replace("name: node-2", "id: rack-1-u4, name: node-2"),
        MACHINES.replace("pools: [198.51.100.0/30", "pools: [198.51.100.1/30"),
        "{",
        "- a\n...",
        "hello\n...",
    ],
)
async def test_a_file_that_cannot_be_used_is_an_outage_and_nobody_is_gone(there: There, text: str) -> None:
    """[R:absent-means-looked]."""
    async with there.served() as channel:
        there.write(text)
        error = await refused(InstancesStub(channel).BatchGetInstances(nodes(pb.NodeRef(name="node-9"))))
        assert error.reason == pb.ERROR_REASON_CLOUD_API_UNAVAILABLE
        status = await CloudProviderStub(channel).GetStatus(pb.GetStatusRequest())
        assert [(one.type, one.status) for one in status.conditions] == [
            (pb.CONDITION_TYPE_CLOUD_REACHABLE, pb.CONDITION_STATUS_FALSE)
        ]
        there.file.unlink()
        await refused(InstancesStub(channel).BatchGetInstances(nodes(pb.NodeRef(name="node-9"))))
        there.write(MACHINES)
        answer = await InstancesStub(channel).BatchGetInstances(nodes(pb.NodeRef(name="node-9")))
        assert answer.results[0].state == pb.INSTANCE_STATE_ABSENT


async def test_a_change_of_the_file_is_told_to_watches(there: There) -> None:
    async with there.served() as channel:
        stream: Any = InstancesStub(channel).WatchInstances(pb.WatchInstancesRequest(cluster=CLUSTER))
        assert (await stream.read()).HasField("started")
        there.write("half")
        await refused(InstancesStub(channel).BatchGetInstances(nodes(pb.NodeRef(name="node-1"))))
        there.write(MACHINES.replace("stopped", "running"))
        async with asyncio.timeout(20):
            assert (await stream.read()).changed.provider_id == "inventory://node-2"


def test_the_example_of_the_readme_is_an_inventory() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    text = readme.partition("```yaml\n")[2].partition("```")[0]
    assert len(Contents.parse(text).machines) == 2


def ensure(name: str, *backends: str, **service: Any) -> pb.EnsureLoadBalancerRequest:
    ref = pb.ServiceRef(namespace="default", name=name, uid=f"uid-{name}")
    return pb.EnsureLoadBalancerRequest(
        cluster=CLUSTER,
        fencing=pb.Fencing(),
        service=pb.Service(ref=ref, ports=[pb.ServicePort(port=80, node_port=30080, protocol=pb.PROTOCOL_TCP)], **service),
        backends=pb.BackendSet(nodes=[pb.NodeRef(name=one) for one in backends]),
        desired_digest="digest-1",
    )


async def test_an_address_is_kept_over_restarts_and_freed_by_deletion(there: There) -> None:
    async with there.served() as channel:
        balancers = LoadBalancersStub(channel)
        first = (await balancers.EnsureLoadBalancer(ensure("a", "node-1"))).load_balancer
        assert first == (await balancers.EnsureLoadBalancer(ensure("a", "node-1"))).load_balancer
        second = (await balancers.EnsureLoadBalancer(ensure("b"))).load_balancer
        assert [first.ingress[0].ip, second.ingress[0].ip] == ["198.51.100.1", "198.51.100.2"]
        assert (await refused(balancers.EnsureLoadBalancer(ensure("c")))).reason == pb.ERROR_REASON_QUOTA_EXCEEDED
    there.write("half")
    async with there.served() as channel:
        balancers = LoadBalancersStub(channel)
        # Existing balancers keep working while the inventory is unusable.
        assert (await balancers.EnsureLoadBalancer(ensure("a", "node-1", "node-2"))).load_balancer.ingress == first.ingress
        listed = await balancers.ListLoadBalancers(pb.ListLoadBalancersRequest(cluster=CLUSTER))
        assert [one.service.name for one in listed.load_balancers] == ["a", "b"]
        other = await balancers.ListLoadBalancers(pb.ListLoadBalancersRequest(cluster=pb.ClusterRef(uid="other")))
        assert not other.load_balancers
        there.write(MACHINES)
        delete = pb.DeleteLoadBalancerRequest(cluster=CLUSTER, fencing=pb.Fencing(), service=first.service)
        await balancers.DeleteLoadBalancer(delete)
        await balancers.DeleteLoadBalancer(delete)
        assert (await balancers.EnsureLoadBalancer(ensure("c"))).load_balancer.ingress == first.ingress
        gone = await balancers.GetLoadBalancer(pb.GetLoadBalancerRequest(cluster=CLUSTER, service=first.service))
        assert gone.load_balancer.state == pb.LOAD_BALANCER_STATE_ABSENT
    rows = json.loads(there.allocations.read_text())
    assert {row["name"]: row["ports"] for row in rows.values()} == {"b": [["TCP", 80, 30080]], "c": [["TCP", 80, 30080]]}


async def test_a_service_may_ask_for_an_address_or_a_family(there: There) -> None:
    async with there.served() as channel:
        balancers = LoadBalancersStub(channel)

        async def address(request: pb.EnsureLoadBalancerRequest) -> str:
            return (await balancers.EnsureLoadBalancer(request)).load_balancer.ingress[0].ip

        assert await address(ensure("a", load_balancer_ip="198.51.100.2")) == "198.51.100.2"
        assert await address(ensure("six", ip_families=[pb.IP_FAMILY_IPV6])) == "2001:db8::1"
        # The allocations were lost, but the Service's status has the address.
        assert await address(ensure("b", ingress=[pb.LoadBalancerIngress(ip="198.51.100.1")])) == "198.51.100.1"
        six = {"ip_families": [pb.IP_FAMILY_IPV6]}
        for wanted, family in (("198.51.100.2", {}), ("10.9.9.9", {}), ("nonsense", {}), ("2001:DB8:0::1", six)):
            error = await refused(balancers.EnsureLoadBalancer(ensure("d", load_balancer_ip=wanted, **family)))
            assert error.reason == pb.ERROR_REASON_INVALID_CONFIGURATION, wanted
        # Its own address, spelled in another way.
        assert await address(ensure("six", load_balancer_ip="2001:DB8:0::1", **six)) == "2001:db8::1"
        dual = ensure("e", ip_family_policy=pb.IP_FAMILY_POLICY_REQUIRE_DUAL_STACK)
        assert (await refused(balancers.EnsureLoadBalancer(dual))).reason == pb.ERROR_REASON_UNSUPPORTED_FEATURE
        unknown = ensure("a")
        unknown.service.ports.add(port=81, node_port=30081)
        assert (await refused(balancers.EnsureLoadBalancer(unknown))).reason == pb.ERROR_REASON_UNSUPPORTED_FEATURE
        without = ensure("a")
        without.service.ports[0].node_port = 0
        assert (await refused(balancers.EnsureLoadBalancer(without))).fields[0][0] == "spec.allocateLoadBalancerNodePorts"


async def test_new_backends_reach_those_that_are_there(there: There) -> None:
    async with there.served() as channel:
        balancers = LoadBalancersStub(channel)
        request = ensure("a", "node-1")
        await balancers.EnsureLoadBalancer(request)
        items = [
            pb.LoadBalancerUpdate(service=service, desired_digest="digest-2")
            for service in (request.service, ensure("absent").service)
        ]
        update = pb.BatchUpdateLoadBalancersRequest(
            cluster=CLUSTER, fencing=pb.Fencing(), backends=pb.BackendSet(nodes=[pb.NodeRef(name="node-2")]), items=items
        )
        answer = await balancers.BatchUpdateLoadBalancers(update)
        assert {one.service_uid: (one.outcome, one.error.reason) for one in answer.results} == {
            "uid-a": (pb.UPDATE_OUTCOME_UPDATED, pb.ERROR_REASON_UNSPECIFIED),
            "uid-absent": (pb.UPDATE_OUTCOME_NOT_UPDATED, pb.ERROR_REASON_NEEDS_ENSURE),
        }
    (row,) = json.loads(there.allocations.read_text()).values()
    assert (row["digest"], row["backends"]) == ("digest-2", {"node-2": []})


async def test_allocations_that_cannot_be_read_are_not_taken_for_none(there: There) -> None:
    there.allocations.write_text("{")
    async with there.served() as channel:
        error = await refused(LoadBalancersStub(channel).EnsureLoadBalancer(ensure("a")))
        assert error.reason == pb.ERROR_REASON_CLOUD_API_UNAVAILABLE
    assert there.allocations.read_text() == "{"
