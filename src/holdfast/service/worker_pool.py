"""Worker processes for what clients send, shared fairly between clients. See ``worker_process``."""

import asyncio
import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast.service.refusals import LOG, RequestError
from holdfast.service.worker_process import read_message, write_message

WORKERS = 3
"""Processes. One client uses at most all but one of them, so that others need not wait for its tasks."""
_LARGEST_ANSWER = 2**30
# One heap, and blocks from 128 KiB on are returned to the system at once: the memory limit counts reserved memory.
_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")


def _environment() -> dict[str, str]:
    """Variables of a worker process: those that it needs, and no tokens or passwords."""
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**passed_on, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


class WorkerPool:
    """Runs tasks in worker processes: clients take turns, and a client's own tasks run in order of arrival.

    Use it in one event loop. Processes are started when they are needed.
    """

    def __init__(self, workers: int = WORKERS) -> None:
        self._free = workers
        self._most_of_one = max(1, workers - 1)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="worker")
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}  # by client; the next client's turn is first
        self._running: Counter[str] = Counter()

    async def run(self, task: dict[str, Any], body: bytes, *, client: str) -> bytes:
        """The result of a task; ``RequestError`` if it is refused or exceeds its limits.

        client: the client that sent the body.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(client, deque()).append(turn)
        self._start_next()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled() or not turn.done():
                self._forget(client, turn)
            else:
                self._end(client)
            raise
        call = asyncio.get_running_loop().run_in_executor(self._threads, _run_task, task, body)
        # Also if the caller gives up meanwhile: the process is busy until the task ends.
        call.add_done_callback(lambda _: self._end(client))
        return await asyncio.shield(call)

    async def start(self) -> None:
        """Start one process, so that the first request that needs one does not wait for it."""
        await asyncio.get_running_loop().run_in_executor(self._threads, lambda: _IDLE.put(_IDLE.take()))

    async def close(self) -> None:
        """Wait for the tasks that run. The processes are kept for other pools of this process."""
        await asyncio.to_thread(self._threads.shutdown)

    def _start_next(self) -> None:
        """Give free workers to the clients that have the fewest; among equals to the one that waits the longest."""
        while self._free:
            waiting = [client for client in self._queues if self._running[client] < self._most_of_one]
            if not waiting:
                return
            client = min(waiting, key=self._running.__getitem__)
            queue = self._queues.pop(client)
            turn = queue.popleft()
            if queue:
                self._queues[client] = queue  # at the end
            if turn.done():  # its caller was cancelled just now
                continue
            self._free -= 1
            self._running[client] += 1
            turn.set_result(None)

    def _end(self, client: str) -> None:
        self._free += 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        self._start_next()

    def _forget(self, client: str, turn: "asyncio.Future[None]") -> None:
        queue = self._queues.get(client)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[client]


def _run_task(task: dict[str, Any], body: bytes) -> bytes:
    worker = _IDLE.take()
    try:
        header, result = worker.answer(task, body)
    except _EndedError as ended:
        raise RequestError(422, ended.reason(task["seconds"])) from None
    except BaseException:
        worker.kill()
        raise
    _IDLE.put(worker)
    if "reason" in header:
        raise RequestError(int(header["status"]), str(header["reason"]))
    return result


class _EndedError(Exception):
    """A worker process ended during a task; ``code``: its exit status."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def reason(self, seconds: float) -> str:
        if self.code == -signal.SIGPROF:
            return f"it takes more than {seconds:g} s of processor time to read"
        LOG.warning("a worker process ended with status %d", self.code)
        return "it cannot be read within the limits of memory and time"


class _Worker:
    """One process. One thread at a time uses it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "holdfast.service.worker_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # decoders of images write to it what a client makes them write
            env=_environment(),
        )
        if self._read() is None:
            raise RuntimeError(f"a worker process did not start (status {self._process.wait()})")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def answer(self, task: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        assert self._process.stdin is not None
        found = None
        with contextlib.suppress(BrokenPipeError):
            write_message(self._process.stdin, task, body)
            found = self._read()
        if found is None:
            raise _EndedError(self.kill())
        return found

    def kill(self) -> int:
        """End the process; its exit status."""
        if self._process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1)  # its end of the pipe is closed a moment before it is gone
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        return self._process.wait()

    def close(self) -> None:
        """End the process, which has no task."""
        self._process.kill()
        self.kill()

    def _read(self) -> tuple[dict[str, Any], bytes] | None:
        assert self._process.stdout is not None
        return read_message(self._process.stdout, _LARGEST_ANSWER)


class _IdleWorkers:
    """Processes without a task, for all pools of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: list[_Worker] = []

    def take(self) -> _Worker:
        with self._lock:
            while self._workers:
                worker = self._workers.pop()
                if worker.alive:
                    return worker
                worker.close()
        return _Worker()

    def put(self, worker: _Worker) -> None:
        with self._lock:
            self._workers.append(worker)

    def close(self) -> None:
        with self._lock:
            while self._workers:
                self._workers.pop().close()


_IDLE = _IdleWorkers()
atexit.register(_IDLE.close)
