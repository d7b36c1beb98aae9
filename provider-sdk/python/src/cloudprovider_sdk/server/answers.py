"""Ensures that a batch's response contains each key exactly once and no other key."""

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

from cloudprovider_sdk import proto as pb

_log = logging.getLogger("cloudprovider_sdk")

_LACKING = "the provider did not return exactly one result for this item"


def settle(request: Any, answer: Any) -> None:
    """Repair the results of a batch in place: drop unrequested keys, and mark missing or duplicate ones as unknown.

    The host would do the same and count it; but only this log, which the provider's team reads, names the keys.
    """
    if not hasattr(answer, "results"):
        return
    asked = keys(request)
    given = Counter(_key(result) for result in answer.results)
    wrong = {key for key in {*asked, *given} if given[key] != 1 or key not in asked}
    if not wrong:
        return
    _log.error("the response of a batch does not contain each key exactly once", extra={"keys": sorted(wrong)[:10]})
    kept = [result for result in answer.results if _key(result) not in wrong]
    del answer.results[:]
    answer.results.extend(kept)
    for key in asked:
        if key in wrong:
            refuse(answer, key, pb.ItemError(reason=pb.ERROR_REASON_INTERNAL_ERROR, message=_LACKING))


def refuse(answer: Any, key: str, error: pb.ItemError) -> None:
    """Add the result of an item that failed."""
    if isinstance(answer, pb.BatchUpdateLoadBalancersResponse):
        answer.results.add(service_uid=key, outcome=pb.UPDATE_OUTCOME_NOT_UPDATED, error=error)
    else:
        answer.results.add(key=key, error=error)


def keys(request: Any) -> list[str]:
    """Return the keys by which the results of a batch are matched."""
    if isinstance(request, pb.BatchUpdateLoadBalancersRequest):
        return [item.service.ref.uid for item in request.items]
    batch: Iterable[Any] = request.queries if hasattr(request, "queries") else request.items
    return [item.key for item in batch]


def _key(result: Any) -> str:
    key: str = result.service_uid if isinstance(result, pb.LoadBalancerUpdateResult) else result.key
    return key
