"""The threads in which `asyncio.to_thread` runs blocking code."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads(ThreadPoolExecutor):
    """At most `limit` daemon threads: the end of the process would wait for those of the base class, also for one that hangs.

    asyncio accepts no executor that is not a `ThreadPoolExecutor`. A thread ends when no call waits.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._lock = threading.Lock()
        self._running = 0
        self._waiting = deque[tuple[Future[Any], Callable[[], Any]]]()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call in a thread of its own, as soon as there may be another one."""
        future = Future[T]()
        with self._lock:
            self._waiting.append((future, partial(fn, *args, **kwargs)))
            if self._running < self._limit:
                threading.Thread(target=self._work, name="cloudprovider", daemon=True).start()
                self._running += 1
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                future, call = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - whoever awaits the call gets it
                    future.set_exception(error)
