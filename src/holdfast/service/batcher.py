"""What several callers ask for within a moment, done in one call."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")

Answer = Callable[[int, Out | Exception], None]
"""(place in the batch, its result or why there is none); from any thread, once for each place."""


class Batcher(Generic[In, Out]):
    """Collects jobs and gives them, in order of arrival, to ``work`` in a thread of its own.

    A batch starts ``wait_s`` after its first job came, or as soon as it has ``most``; while one is at work the next one
    fills. ``work`` may answer early; whoever it has not answered when it returns or raises is answered with the error.
    A caller that gave up before its batch started is left out.
    """

    def __init__(self, work: Callable[[list[In], Answer[Out]], None], *, most: int, wait_s: float, name: str) -> None:
        self._work, self._most, self._wait_s = work, most, wait_s
        self._waiting: deque[tuple[In, asyncio.Future[Out]]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._task: asyncio.Task[None] | None = None
        self._came = asyncio.Event()
        self.batches = self.jobs = 0

    @property
    def queued(self) -> int:
        return len(self._waiting)

    async def ask(self, job: In) -> Out:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        future: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        self._came.set()
        return await future

    async def close(self) -> None:
        """Let the batch at work end."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await asyncio.to_thread(self._thread.shutdown)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._waiting:
                self._came.clear()
                await self._came.wait()
            ready = loop.time() + self._wait_s
            while len(self._waiting) < self._most and (left := ready - loop.time()) > 0:
                self._came.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._came.wait(), left)
            batch: list[tuple[In, asyncio.Future[Out]]] = []
            while self._waiting and len(batch) < self._most:
                job, future = self._waiting.popleft()
                if not future.done():
                    batch.append((job, future))
            if batch:
                await self._do(batch, loop)

    async def _do(self, batch: list[tuple[In, "asyncio.Future[Out]"]], loop: asyncio.AbstractEventLoop) -> None:
        futures = [future for _, future in batch]

        def answer(place: int, result: Out | Exception) -> None:
            loop.call_soon_threadsafe(_settle, futures[place], result)

        self.batches += 1
        self.jobs += len(batch)
        failure: Exception = RuntimeError("the batch ended without an answer")
        try:
            await loop.run_in_executor(self._thread, self._work, [job for job, _ in batch], answer)
        except Exception as error:
            failure = error
        await asyncio.sleep(0)  # answers given from the thread are settled first
        for future in futures:
            _settle(future, failure)


def _settle(future: "asyncio.Future[Out]", result: Out | Exception) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
