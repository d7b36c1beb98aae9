"""Pages by key."""

import pytest
from fixture import CLUSTER
from vectors import rows

from cloudprovider_sdk import ProviderError, open_page_token, page, seal_page_token
from cloudprovider_sdk import proto as pb


def request(size: int = 2, token: str = "", uid: str = CLUSTER.uid) -> pb.ListInstancesRequest:
    return pb.ListInstancesRequest(cluster=pb.ClusterRef(uid=uid), page_size=size, page_token=token)


def walk(items: list[str]) -> list[list[str]]:
    pages, token = [], ""
    while True:
        found, token = page(request(token=token), items, str)
        pages.append(found)
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
    assert walk(items) == pages


def test_what_goes_and_comes_during_a_walk_costs_the_others_nothing() -> None:
    first, token = page(request(), ["a", "b", "c", "d"], str)
    second, _ = page(request(token=token), ["a", "aa", "c", "d"], str)
    assert (first, second) == (["a", "b"], ["c", "d"])
    again, _ = page(request(token=token), ["c", "d"], str)
    assert again == second, "a token may be used again"


def spelled(text: str) -> str:
    """`$3000` means a text of 3000 bytes."""
    return "x" * int(text[1:]) if text.startswith("$") else text


def test_tokens_stand_for_those_of_clouds_as_in_every_sdk() -> None:
    """[R:page-token-refused]."""
    for row in rows("tokens"):
        if "position" not in row:
            with pytest.raises(ProviderError) as refused:
                open_page_token(request(token=row["token"], uid="c-1"))
            assert pb.ErrorReason.Name(refused.value.reason) == f"ERROR_REASON_{row['reason']}", row
            continue
        position = spelled(row["position"])
        if "fits into no token" in row.get("why", ""):
            with pytest.raises(ValueError, match="has 9000 bytes"):
                seal_page_token(request(uid="c-1"), position)
            continue
        token = seal_page_token(request(uid="c-1"), position)
        assert token == row.get("token", token), row
        assert open_page_token(request(token=token, uid="c-1")) == position, row
