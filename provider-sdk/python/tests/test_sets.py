"""Backend sets that requests name by digest."""

from typing import Any

import pytest
from fixture import ensure, update

from cloudprovider_sdk import ProviderError
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.checks import BackendSets
from cloudprovider_sdk.server.lanes import fingerprint


def whole(digest: str, nodes: int) -> pb.BackendSet:
    return pb.BackendSet(digest=digest, nodes=[pb.NodeRef(name=f"{digest}-{at}") for at in range(nodes)])


def named(digest: str) -> pb.BackendSet:
    return pb.BackendSet(digest=digest, nodes_omitted=True)


def seen(sets: BackendSets, given: pb.BackendSet, cluster: str = "one") -> pb.BackendSet | str:
    """What a method sees of a set, or the unknown digest."""
    request = ensure("s")
    request.cluster.uid = cluster
    request.backends.CopyFrom(given)
    return request.backends if (unknown := refused(sets, request)) is None else unknown


def refused(sets: BackendSets, request: Any) -> str | None:
    try:
        sets.complete(request)
    except ProviderError as error:
        return error.metadata["digest"] if error.reason == pb.ERROR_REASON_UNKNOWN_BACKEND_SET else error.message
    return None


def test_a_set_that_came_is_known_by_its_digest_in_its_cluster() -> None:
    """[R:set-by-digest] [R:set-per-cluster]."""
    sets = BackendSets(1 << 20)
    assert seen(sets, named("a")) == "a"
    assert seen(sets, whole("a", 3)) == whole("a", 3)
    assert seen(sets, named("a")) == whole("a", 3)
    assert seen(sets, named("a"), "two") == "a"
    assert seen(sets, whole("a", 1), "two") == whole("a", 1)
    assert seen(sets, named("a")) == whole("a", 3)
    # The latest set counts: nobody here can tell which of two sets a digest belongs to.
    assert seen(sets, whole("a", 2)) == whole("a", 2)
    assert seen(sets, named("a")) == whole("a", 2)


def test_a_batch_gets_its_set_too() -> None:
    sets, request = BackendSets(1 << 20), update("s")
    request.backends.CopyFrom(named("a"))
    assert refused(sets, request) == "a"
    request.backends.CopyFrom(whole("a", 1))
    assert refused(sets, request) is None
    request.backends.CopyFrom(named("a"))
    assert refused(sets, request) is None
    assert request.backends == whole("a", 1)


@pytest.mark.parametrize(("size", "sets"), [(1000, ["f", "e", "d", "c"]), (1 << 20, ["a", "f", "e", "d"])])
def test_memory_is_bounded_and_the_last_four_stay(size: int, sets: list[str]) -> None:
    kept = BackendSets(size)
    for digest in "abcdef":
        seen(kept, whole(digest, 120))
    for digest in sets:
        assert seen(kept, named(digest)) == whole(digest, 120)
    for at in range(100):
        seen(kept, whole(str(at), 1))
        assert seen(kept, named("0")) == whole("0", 1), "what is used stays"
    assert [seen(kept, named(str(at))) for at in (84, 99)] == ["84", whole("99", 1)]


@pytest.mark.parametrize(
    ("digest", "node", "wanted", "same"),
    [("d", "b", "1", True), ("e", "a", "1", False), ("d", "a", "2", False), ("", "b", "1", False)],
)
def test_backends_are_compared_by_their_digest(digest: str, node: str, wanted: str, *, same: bool) -> None:
    def request(digest: str, node: str, wanted: str) -> pb.EnsureLoadBalancerRequest:
        backends = pb.BackendSet(digest=digest, nodes=[pb.NodeRef(name=node)])
        return pb.EnsureLoadBalancerRequest(desired_digest=wanted, backends=backends)

    first = request(digest and "d", "a", "1")
    assert (fingerprint(first) == fingerprint(request(digest, node, wanted))) is same
    assert len(first.backends.nodes) == 1
