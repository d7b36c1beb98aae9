"""Ensures that a batch's response contains each key exactly once and no other key, and logs which items failed."""

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

from grpc import StatusCode

from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.errors import ProviderError, code_of

_log = logging.getLogger("cloudprovider_sdk")

_SHOWN = 10
"""How many keys one line lists, and how many items of a batch the log names: a cloud that is away fails all alike."""
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
    _log_failed(
        dict(zip(asked, map(_name, _batch(request)), strict=True)), [one for one in answer.results if _key(one) not in wrong]
    )
    if not wrong:
        return
    _log.error("the response of a batch does not contain each key exactly once", extra={"keys": sorted(wrong)[:_SHOWN]})
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
    return [item.service.ref.uid if isinstance(item, pb.LoadBalancerUpdate) else item.key for item in _batch(request)]


def _batch(request: Any) -> Iterable[Any]:
    batch: Iterable[Any] = request.queries if hasattr(request, "queries") else request.items
    return batch


def _name(item: Any) -> str:
    """Return the name of an item's object."""
    match item:
        case pb.InstanceQuery():
            return item.node.name
        case pb.LoadBalancerUpdate():
            return f"{item.service.ref.namespace}/{item.service.ref.name}"
        case pb.RouteToEnsure():
            return item.destination_cidr
        case pb.RouteToDelete():
            return item.route.destination_cidr
    name: str = item.name
    return name


def _log_failed(names: dict[str, str], results: Iterable[Any]) -> None:
    """Log the errors of items as those of calls are: what the provider itself did wrong is a warning."""
    failed = [result for result in results if result.HasField("error")]
    for result in failed[:_SHOWN]:
        known = result.error.reason in pb.ErrorReason.values()
        error = ProviderError(result.error.reason if known else pb.ERROR_REASON_UNSPECIFIED, result.error.message)
        level = logging.WARNING if code_of(error.reason) is StatusCode.INTERNAL else logging.INFO
        _log.log(level, "%s", error.message, extra={"item": names[_key(result)], "reason": error.reason_name})
    if len(failed) > _SHOWN:
        _log.warning("more items of the batch failed", extra={"items": len(failed) - _SHOWN})


def _key(result: Any) -> str:
    key: str = result.service_uid if isinstance(result, pb.LoadBalancerUpdateResult) else result.key
    return key
