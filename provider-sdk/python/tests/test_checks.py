"""Shape, revisions and epochs of requests: the rows that all SDKs share."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from cloud import Cloud
from google.protobuf import text_format
from vectors import rows

from cloudprovider_sdk import ProviderError, checks
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.checks import Revisions
from cloudprovider_sdk.method import METHODS

ADVERTISED = (
    Cloud()
    .provider(
        capabilities=pb.GetCapabilitiesResponse(
            limits=pb.Limits(
                max_batch_instances=3, max_batch_load_balancers=3, max_batch_routes=3, max_batch_volumes=3, max_page_size=50
            )
        )
    )
    .advertised
)
SHAPES = rows("shapes")


def message(row: dict[str, str]) -> Any:
    text = re.sub(r"\$(\d+)", lambda mark: "x" * int(mark[1]), row["request"])
    return text_format.Parse(text, getattr(pb, row["message"])())


@pytest.mark.parametrize("row", SHAPES, ids=lambda row: f"{row['message']}-{row.get('field', '')}")
def test_requests_are_refused_as_in_every_sdk(row: dict[str, str]) -> None:
    """[R:cluster-uid-required]."""
    if "reason" not in row:
        checks.check(message(row), ADVERTISED)
        return
    with pytest.raises(ProviderError) as refused:
        checks.check(message(row), ADVERTISED)
    assert refused.value.reason_name == row["reason"]
    told = [path for path, _ in refused.value.fields]
    # The error for a missing message names its first required field: here, absent and empty are alike.
    assert told in ([], [row.get("field")]) or told[0].startswith(row["field"] + ".")
    assert bool(told) == ("field" in row)


def test_every_request_that_reaches_a_cloud_has_its_row() -> None:
    shaped = {method.request for method in METHODS if "cluster" in method.request.DESCRIPTOR.fields_by_name}
    assert {one.DESCRIPTOR.name for one in shaped} == {row["message"] for row in SHAPES if "reason" not in row}


def reason_of(check: Callable[[], object]) -> int | None:
    try:
        check()
    except ProviderError as error:
        return error.reason
    return None


def accepted(revisions: Revisions, cluster: str, service: str, revision: int) -> bool:
    return reason_of(lambda: revisions.accept(cluster, service, revision)) != pb.ERROR_REASON_STALE_REVISION


def test_revisions_grow_as_in_every_sdk() -> None:
    """[R:stale-revision]."""
    revisions = Revisions()
    for row in rows("revisions"):
        assert accepted(revisions, row["cluster"], row["service"], int(row["revision"])) != row["refused"], row


def test_the_service_whose_last_change_is_longest_ago_is_forgotten() -> None:
    revisions = Revisions(remembered=2)
    assert accepted(revisions, "c", "s", 10)
    assert accepted(revisions, "d", "s", 1)
    assert accepted(revisions, "c", "s", 11)
    assert accepted(revisions, "c", "t", 5)
    assert accepted(revisions, "d", "s", 1)
    assert not accepted(revisions, "c", "t", 4)
