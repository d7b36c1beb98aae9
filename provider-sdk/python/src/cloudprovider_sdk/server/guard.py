"""Turns whatever a method raises into an error of the contract; logs its cause, which never leaves the process."""

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import TypeVar

from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.call import Call
from cloudprovider_sdk.errors import ProviderError
from cloudprovider_sdk.errors.wire import count_causes

T = TypeVar("T")
_log = logging.getLogger("cloudprovider_sdk")


async def guarded(call: Call, work: Awaitable[T], *, of_one: bool = False) -> T:
    """Await a provider's method, which may be a mutation of one object."""
    count_causes()
    began = time.monotonic()
    try:
        return await work
    except ProviderError as error:
        if error.__cause__ is not None:
            _log.warning("%s: %s", error, _chain(error.__cause__))
        raise
    except TimeoutError as cause:
        # The method's own limit for a call to its cloud: the caller's deadline cancels instead.
        _log.warning("a call to the cloud took too long: %s", _chain(cause))
        if of_one:
            # Whether the cloud answers is what many objects show, and reads: three objects that hang in a cloud that works must
            # not hold up what is deleted elsewhere.
            took = f"{time.monotonic() - began:.0f}s"
            message = f"the provider gave up after {took}: its call to the cloud did not return in time"
            metadata = {"request_id": call.request_id}
            raise ProviderError(pb.ERROR_REASON_INTERNAL_ERROR, message, metadata=metadata) from cause
        raise errors.cloud_api_unavailable() from cause
    except asyncio.CancelledError as cause:
        # Its own, unless this call is cancelled: it may have waited for work that somebody else gave up.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise _internal(call) from cause
    except GeneratorExit:
        raise
    except BaseException as cause:
        # Also of a library that means to end the process: its call gets an answer, and all others go on.
        raise _internal(call) from cause


def _internal(call: Call) -> ProviderError:
    _log.exception("the method failed")
    return errors.internal(request_id=call.request_id)


def _chain(error: BaseException) -> str:
    text, cause = f"{type(error).__name__}: {error}", error.__cause__ or error.__context__
    return text if cause is None else f"{text}: {_chain(cause)}"
