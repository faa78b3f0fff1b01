"""Calls of coroutines in threads."""

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


class CallThreads:
    """Runs calls in a fixed number of threads, in order of arrival. Use it in one event loop.

    count: number of threads; they are started when they are needed.
    name: prefix of their names.

    ``loop.run_in_executor`` does the same with two futures, a lock and a wake-up of the event loop for each call. Here
    the event loop is woken once for all results that are there. A call is left out if its future was cancelled before
    the call began.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._done: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._woken = False
        self._threads: list[threading.Thread] = []

    def run(self, function: Callable[..., Result], *arguments: Any) -> "asyncio.Future[Result]":
        """The future result of a call."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        if len(self._threads) < self._count:
            thread = threading.Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._calls.put((loop, future, function, arguments))
        return future

    def close(self) -> None:
        """Wait for the calls that were begun or wait, and end the threads."""
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            loop, future, function, arguments = call
            result: Any = None
            failure: BaseException | None = None
            if not future.cancelled():
                try:
                    result = function(*arguments)
                except BaseException as error:
                    # A future takes every exception but this one.
                    stop = isinstance(error, StopIteration)
                    failure = RuntimeError("the call raised StopIteration") if stop else error
            self._done.append((future, result, failure))
            del call, future, function, arguments, result, failure  # nothing is kept while the thread waits
            # The result is there before the flag is read, and ``_settle`` resets the flag before it takes results.
            if not self._woken:
                self._woken = True
                with contextlib.suppress(RuntimeError):  # the event loop has ended: nobody waits for the result
                    loop.call_soon_threadsafe(self._settle)
            del loop

    def _settle(self) -> None:
        self._woken = False
        while self._done:
            future, result, failure = self._done.popleft()
            if future.done():
                continue
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)
