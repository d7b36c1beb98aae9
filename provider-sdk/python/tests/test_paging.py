"""Pages by key."""

import pytest
from fixture import CLUSTER
from vectors import rows

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


def spelled(text: str) -> str:
    """`$3000` means a text of 3000 bytes."""
    return "x" * int(text[1:]) if text.startswith("$") else text


def test_tokens_stand_for_those_of_clouds_as_in_every_sdk() -> None:
    """[R:page-token-validity]."""
    now = [0.0]
    pager, other = (Pager(validity=300, clock=lambda: now[0]) for _ in range(2))
    issued: dict[str, str] = {}
    for row in rows("tokens"):
        now[0] = row["at"]
        uid = row.get("cluster", "c-1")
        if "seal" in row:
            issued[row["as"]] = pager.seal(request(uid=uid), spelled(row["seal"]))
            assert len(issued[row["as"]]) <= 1024, row
            continue
        token = issued[row["open"]] if "open" in row else row["token"]
        if row.get("altered"):
            token = ("B" if token.startswith("A") else "A") + token[1:]
        kind = pb.ListRoutesRequest if row.get("list") == "ListRoutes" else pb.ListInstancesRequest
        asked = kind(cluster=pb.ClusterRef(uid=uid), page_token=token)
        opens = other if "process" in row else pager
        if "reason" not in row:
            assert opens.open(asked) == spelled(row["becomes"]), row
            continue
        with pytest.raises(ProviderError) as refused:
            opens.open(asked)
        assert pb.ErrorReason.Name(refused.value.reason) == f"ERROR_REASON_{row['reason']}", row


def test_long_tokens_take_a_bounded_place() -> None:
    pager = Pager()
    first, *others = (pager.seal(request(), "x" * 2000) for _ in range(4097))
    with pytest.raises(ProviderError) as expired:
        pager.open(request(token=first))
    assert expired.value.reason == pb.ERROR_REASON_PAGE_TOKEN_EXPIRED, "it was issued"
    assert all(pager.open(request(token=other)) == "x" * 2000 for other in others)
