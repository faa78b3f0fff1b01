"""Jobs of several callers, run together in one call."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

SetResult = Callable[[int, Result | Exception], None]
"""Called with a job's index in the batch and its result or error; from any thread, once for each job."""


class Batcher(Generic[Job, Result]):
    """Collects jobs and runs them, in order of arrival, in a thread of its own.

    run_batch: called with the jobs of a batch and a function that sets their results. It may set results before it
        returns. Jobs without a result when it returns or raises get the error.
    max_batch: most jobs of a batch.
    wait_s: how long the first job of a batch waits for others, in seconds. While a batch runs, the next one fills.
    name: prefix of the thread's name.

    A job is left out if its caller was cancelled before the batch started.
    """

    def __init__(
        self, run_batch: Callable[[list[Job], SetResult[Result]], None], *, max_batch: int, wait_s: float, name: str
    ) -> None:
        self.max_batch = max_batch
        self._run_batch, self._wait_s = run_batch, wait_s
        self._waiting: deque[tuple[Job, asyncio.Future[Result]]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._task: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()
        self.batches = self.jobs = 0

    @property
    def waiting(self) -> int:
        """Jobs that are in no batch yet."""
        return len(self._waiting)

    async def submit(self, job: Job) -> Result:
        """The job's result, once its batch has run."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run_all())
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        self._arrived.set()
        return await future

    async def close(self) -> None:
        """Wait for the batch that is running; later ones are not run."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await asyncio.to_thread(self._thread.shutdown)

    async def _run_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            deadline = loop.time() + self._wait_s
            while len(self._waiting) < self.max_batch and (left := deadline - loop.time()) > 0:
                self._arrived.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._arrived.wait(), left)
            batch: list[tuple[Job, asyncio.Future[Result]]] = []
            while self._waiting and len(batch) < self.max_batch:
                job, future = self._waiting.popleft()
                if not future.done():
                    batch.append((job, future))
            if batch:
                await self._run_one(batch, loop)

    async def _run_one(
        self, batch: list[tuple[Job, "asyncio.Future[Result]"]], loop: asyncio.AbstractEventLoop
    ) -> None:
        futures = [future for _, future in batch]

        def set_result(index: int, result: Result | Exception) -> None:
            loop.call_soon_threadsafe(_settle, futures[index], result)

        self.batches += 1
        self.jobs += len(batch)
        failure: Exception = RuntimeError("the batch ended without a result for this job")
        try:
            await loop.run_in_executor(self._thread, self._run_batch, [job for job, _ in batch], set_result)
        except Exception as error:
            failure = error
        await asyncio.sleep(0)  # results that the thread has set are settled first
        for future in futures:
            _settle(future, failure)


def _settle(future: "asyncio.Future[Result]", result: Result | Exception) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
