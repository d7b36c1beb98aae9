"""Pages by key."""

import pytest
from fixture import CLUSTER

from cloudprovider_sdk import Pager, ProviderError
from cloudprovider_sdk import proto as pb


def request(size: int = 2, token: str = "", uid: str = CLUSTER.uid) -> pb.ListInstancesRequest:
    return pb.ListInstancesRequest(cluster=pb.ClusterRef(uid=uid), page_size=size, page_token=token)


def walk(pager: Pager, items: list[str]) -> list[list[str]]:
    pages, token = [], ""
    while True:
        page, token = pager.page(request(token=token), items, str)
        pages.append(page)
        if not token:
            return pages


@pytest.mark.parametrize(
    ("items", "pages"),
    [
        ([], [[]]),
        (["a"], [["a"]]),
        (["b", "a"], [["a", "b"]]),
        (["c", "a", "b"], [["a", "b"], ["c"]]),
        (["a", "b", "c d", "ä"], [["a", "b"], ["c d", "ä"]]),
    ],
)
def test_a_walk_sees_everything_once_and_ends(items: list[str], pages: list[list[str]]) -> None:
    """[R:page-walk-ends]."""
    assert walk(Pager(), items) == pages


def test_what_goes_and_comes_during_a_walk_costs_the_others_nothing() -> None:
    pager = Pager()
    first, token = pager.page(request(), ["a", "b", "c", "d"], str)
    second, _ = pager.page(request(token=token), ["a", "aa", "c", "d"], str)
    assert (first, second) == (["a", "b"], ["c", "d"])
    again, _ = pager.page(request(token=token), ["c", "d"], str)
    assert again == second, "a token may be used again"


def test_a_token_is_of_this_process_this_cluster_and_not_too_old() -> None:
    """[R:page-token-validity]."""
    now = [0.0]
    pager = Pager(validity=300, clock=lambda: now[0])
    _, token = pager.page(request(), ["a", "b", "c"], str)
    listed = pb.ListRoutesRequest(cluster=CLUSTER, page_size=2, page_token=token)
    for bad in (request(token="x"), request(token=f"{token}A==="), request(token=token, uid="other"), listed):
        with pytest.raises(ProviderError) as invalid:
            pager.page(bad, ["a"], str)
        assert invalid.value.reason == pb.ERROR_REASON_INVALID_TOKEN
    with pytest.raises(ProviderError) as foreign:
        Pager().page(request(token=token), ["a"], str)
    assert foreign.value.reason == pb.ERROR_REASON_INVALID_TOKEN
    now[0] = 300
    assert pager.page(request(token=token), ["c"], str) == (["c"], "")
    now[0] = 300.1
    with pytest.raises(ProviderError) as expired:
        pager.page(request(token=token), ["c"], str)
    assert expired.value.reason == pb.ERROR_REASON_PAGE_TOKEN_EXPIRED
