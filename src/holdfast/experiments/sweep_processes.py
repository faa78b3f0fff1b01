"""A sweep over several processes on one device.

Between two tasks a run is Python: it reads and writes models, carries out a first step, captures the next graph.
Threads of one process do that in turns, processes at once; and a hard crash takes only its own process's runs along.
"""

import contextlib
import multiprocessing
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import torch

from holdfast.errors import HoldfastError
from holdfast.experiments.assemble import SharedData
from holdfast.experiments.sweep import INTERRUPTED, Outcome, PlannedRun, Seats, Watch

LOOK_SECONDS = 0.2
"""How often to see whether to stop, while no process has anything to say."""

STOP, NO_MORE = "stop", "no more"


def run_in_processes(
    runs: Sequence[PlannedRun],
    folder: Path,
    *,
    shared: SharedData,
    device: torch.device,
    parallel: int,
    processes: int,
    sinks: Sequence[str],
    watch: Watch,
    ended: Callable[[str], None],
    stop: threading.Event,
) -> dict[str, Outcome]:
    """As ``run_all``, with ``parallel`` runs shared out evenly over ``processes``; each reads the data by itself."""
    processes = max(1, min(processes, parallel, len(runs)))
    seats = [len(range(i, parallel, processes)) for i in range(processes)]
    with _started(folder, shared, device, seats, sinks) as workers:
        found = _Sharing(workers, runs, watch, ended, stop).until_done()
    left = HoldfastError(INTERRUPTED if stop.is_set() else "not begun: every process of the sweep has died")
    return {run.name: found.get(run.name, left) for run in runs}


@dataclass
class _Worker:
    """A process as its parent sees it; ``running``: names of the runs that are with it."""

    process: SpawnProcess
    connection: Connection
    seats: int
    running: set[str] = field(default_factory=set)

    def tell(self, message: PlannedRun | str) -> None:
        with contextlib.suppress(OSError):  # it has died, which is seen where its words are waited for
            self.connection.send(message)


class _Sharing:
    """Gives each free seat the next run and hears what the processes say."""

    def __init__(
        self,
        workers: Sequence[_Worker],
        runs: Sequence[PlannedRun],
        watch: Watch,
        ended: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        self._alive = list(workers)
        self._waiting = deque(runs)
        self._watch, self._ended, self._stop = watch, ended, stop
        self._told = False
        self._found: dict[str, Outcome] = {}

    def until_done(self) -> dict[str, Outcome]:
        while self._alive:
            self._pass_on_stop()
            self._fill_seats()
            if not any(worker.running for worker in self._alive):
                break
            try:
                self._hear()
            except KeyboardInterrupt:
                self._stop.set()
                self._pass_on_stop()
                while any(worker.running for worker in self._alive):  # each ends at its next event
                    self._hear()
                raise
        return self._found

    def _pass_on_stop(self) -> None:
        if self._stop.is_set() and not self._told:
            self._told = True
            self._waiting.clear()
            for worker in self._alive:
                worker.tell(STOP)

    def _fill_seats(self) -> None:
        """The emptiest process first, so that a few runs are not all with one."""
        while self._waiting:
            worker = min(self._alive, key=lambda one: len(one.running) - one.seats)
            if len(worker.running) >= worker.seats:
                return
            run = self._waiting.popleft()
            worker.running.add(run.name)
            worker.tell(run)

    def _hear(self) -> None:
        spoke = wait([worker.connection for worker in self._alive], LOOK_SECONDS)
        for worker in [worker for worker in self._alive if worker.connection in spoke]:
            try:
                name, event, outcome = worker.connection.recv()
            except (EOFError, OSError):
                self._bury(worker)
                continue
            if event is not None:
                self._watch(name, event)
            else:
                self._end(worker, name, outcome)

    def _bury(self, worker: _Worker) -> None:
        self._alive.remove(worker)
        worker.process.join()
        failure = HoldfastError(f"its process ended with exit code {worker.process.exitcode}")
        for name in sorted(worker.running):
            self._watch(name, {"event": "failed", "text": str(failure)})
            self._end(worker, name, failure)

    def _end(self, worker: _Worker, name: str, outcome: Outcome) -> None:
        worker.running.discard(name)
        self._found[name] = outcome
        self._ended(name)


@contextlib.contextmanager
def _started(
    folder: Path, shared: SharedData, device: torch.device, seats: Sequence[int], sinks: Sequence[str]
) -> Iterator[list[_Worker]]:
    """Processes with so many seats; on the way out they end, and what is still running in them is cut off."""
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    threads = max(1, torch.get_num_threads() // len(seats)) if device.type == "cpu" else None
    workers = []
    try:
        for count in seats:
            here, there = context.Pipe()
            arguments = (there, folder, shared.root, shared.models, str(device), count, tuple(sinks), threads)
            process = context.Process(target=_work, args=arguments, daemon=True)
            process.start()
            there.close()  # so that the end of the process is the end of the pipe
            workers.append(_Worker(process, here, count))
        yield workers
        for worker in workers:
            worker.tell(NO_MORE)
            worker.process.join()
    finally:
        for worker in workers:
            worker.process.kill()
            worker.connection.close()


def _work(
    connection: Connection,
    folder: Path,
    data: Path | None,
    models: Path,
    device: str,
    seats: int,
    sinks: Sequence[str],
    threads: int | None,
) -> None:
    """What a process does: carry out the runs that come through ``connection``, and say how they go."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent says when to stop
    if threads is not None:
        torch.set_num_threads(threads)
    where, stop, speaking = torch.device(device), threading.Event(), threading.Lock()

    def say(name: str, event: dict[str, Any] | None, outcome: Outcome | None = None) -> None:
        with speaking, contextlib.suppress(OSError):  # nobody listens any more: then it stops by itself, see below
            connection.send((name, event, outcome))

    def end(name: str, done: Future[Outcome]) -> None:
        say(name, None, done.result())

    with Seats(folder, shared=SharedData(data, models), device=where, count=seats, sinks=sinks, stop=stop) as here:
        while (message := _next(connection)) != NO_MORE:
            if message == STOP:
                stop.set()
                continue
            future = here.submit(message, watch=partial(say, message.name), ended=lambda: None)
            future.add_done_callback(partial(end, message.name))
        stop.set()


def _next(connection: Connection) -> Any:
    try:
        return connection.recv()
    except EOFError:  # the parent was killed
        return NO_MORE
