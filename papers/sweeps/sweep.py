"""Carry out many runs on one device, in threads of one process or shared over several processes.

Between two tasks a run is mostly Python: it reads and writes models, takes a first step, captures a CUDA graph.
Threads of one process do this in turns; several processes do it at the same time. A crash of one process stops only
the runs of that process.
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

import papers.bridged_runs
import papers.kernels
import papers.networks
import papers.readers  # noqa: F401  in each process: what recipes of studies name
from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.core.storage import read_json
from holdfast.train.engine import Cancellation, RunControl
from holdfast.train.events import Event, OnEvent, RunEnded, RunFailed, Watch
from holdfast.train.experiments.assemble import SharedData
from holdfast.train.experiments.execute import claim_folder, execute
from holdfast.train.experiments.schema import check_recipe
from papers.sweeps.plan import PlannedRun
from papers.sweeps.run_threads import INTERRUPTED, Outcome, RunThreads

POLL_SECONDS = 0.2
"""How often the parent process checks for cancellation while no message arrives."""

STOP, NO_MORE = "stop", "no more"


@dataclass(frozen=True)
class SweepOptions:
    """How the runs of a sweep are carried out.

    device: where all of them train.
    parallel: how many run at the same time. On a GPU a process takes at most ``PER_PRIORITY`` of them.
    processes: how many processes share them; each reads its own copy of the data.
    """

    device: torch.device
    parallel: int = 1
    processes: int = 1


def run_all(
    runs: Sequence[PlannedRun],
    folder: Path,
    options: SweepOptions,
    *,
    shared: SharedData,
    watch: Watch = lambda name, event: None,
    ended: Callable[[str], None] = lambda name: None,
    cancel: Cancellation | None = None,
) -> dict[str, Outcome]:
    """Carry out the runs, each in ``folder`` / its name; returns by name the metrics, or the error of a failed run.

    runs: as from ``plan``.
    options: device and number of runs at the same time.
    shared: the data, read once per process.
    watch: called with (name, event) for every event of every run.
    ended: called with the name of each run that was started, when it ends for any reason.
    cancel: stops the runs between two steps; no further run starts.

    Finished runs in the folder are read, not repeated; unfinished ones are resumed. The traceback of a failed run is
    written to ``error.txt`` in its folder. A folder that holds something else is left unchanged.
    Networks with dropout, and methods that draw random numbers, share one generator per process. Their runs are
    reproducible only one at a time. On a GPU their CUDA graphs cannot be captured beside each other: take as many
    processes as runs at a time.
    """
    cancel = cancel or Cancellation()
    if options.processes > 1:
        return _run_in_processes(runs, folder, options, shared=shared, watch=watch, ended=ended, cancel=cancel)
    with RunThreads(options.device, options.parallel, cancel) as threads:
        futures = {
            run.name: _submit(
                threads, run, folder, shared, options, on_event=partial(watch, run.name), ended=partial(ended, run.name)
            )
            for run in runs
        }
        return threads.results(futures)


def _submit(
    threads: RunThreads,
    run: PlannedRun,
    folder: Path,
    shared: SharedData,
    options: SweepOptions,
    *,
    on_event: OnEvent,
    ended: Callable[[], None] = lambda: None,
) -> Future[Outcome]:
    """Queue one run, to be started, resumed, or read if it is finished."""
    target = RunFolder(folder / run.name)

    def work(control: RunControl) -> dict[str, Any]:
        claim_folder(run.recipe.tables, target, resume=True, check=lambda raw: check_recipe(raw).tables)
        if target.metrics.exists() and target.recipe.exists():
            control.on_event(RunEnded())
            return dict(read_json(target.metrics))
        return execute(
            run.recipe,
            target,
            shared=shared,
            device=str(options.device),
            resume=True,
            control=control,
        )

    return threads.submit(work, on_event=on_event, error_file=target.error, ended=ended)


def _run_in_processes(
    runs: Sequence[PlannedRun],
    folder: Path,
    options: SweepOptions,
    *,
    shared: SharedData,
    watch: Watch,
    ended: Callable[[str], None],
    cancel: Cancellation,
) -> dict[str, Outcome]:
    """``run_all`` with the parallel runs divided evenly over the processes."""
    processes = max(1, min(options.processes, options.parallel, len(runs)))
    threads = [len(range(i, options.parallel, processes)) for i in range(processes)]
    with _started_workers(folder, shared, options, threads) as workers:
        found = _Dispatcher(workers, runs, watch, ended, cancel).run()
    left = HoldfastError(INTERRUPTED if cancel.requested else "not started: every process of the sweep has died")
    return {run.name: found.get(run.name, left) for run in runs}


@dataclass
class _Worker:
    """A process as its parent sees it.

    threads: how many runs it carries out at the same time.
    running: names of the runs that it has been given and that have not ended.
    """

    process: SpawnProcess
    connection: Connection
    threads: int
    running: set[str] = field(default_factory=set)

    def send(self, message: PlannedRun | str) -> None:
        with contextlib.suppress(OSError):  # the process has died, which ``_receive`` notices
            self.connection.send(message)


class _Dispatcher:
    """Gives each free thread of a worker the next run, and receives events and results."""

    def __init__(
        self,
        workers: Sequence[_Worker],
        runs: Sequence[PlannedRun],
        watch: Watch,
        ended: Callable[[str], None],
        cancel: Cancellation,
    ) -> None:
        self._alive = list(workers)
        self._waiting = deque(runs)
        self._watch, self._ended, self._cancel = watch, ended, cancel
        self._stop_sent = False
        self._found: dict[str, Outcome] = {}

    def run(self) -> dict[str, Outcome]:
        """Return once no run is waiting or running."""
        while self._alive:
            self._forward_stop()
            self._assign_runs()
            if not any(worker.running for worker in self._alive):
                break
            try:
                self._receive()
            except KeyboardInterrupt:
                self._cancel.cancel()
                self._forward_stop()
                while any(worker.running for worker in self._alive):  # each run saves a checkpoint and ends
                    self._receive()
                raise
        return self._found

    def _forward_stop(self) -> None:
        if self._cancel.requested and not self._stop_sent:
            self._stop_sent = True
            self._waiting.clear()
            for worker in self._alive:
                worker.send(STOP)

    def _assign_runs(self) -> None:
        """The worker with most free threads first, so that a few runs are spread over all workers."""
        while self._waiting:
            worker = min(self._alive, key=lambda one: len(one.running) - one.threads)
            if len(worker.running) >= worker.threads:
                return
            run = self._waiting.popleft()
            worker.running.add(run.name)
            worker.send(run)

    def _receive(self) -> None:
        ready = wait([worker.connection for worker in self._alive], POLL_SECONDS)
        for worker in [worker for worker in self._alive if worker.connection in ready]:
            try:
                name, event, outcome = worker.connection.recv()
            except (EOFError, OSError):
                self._remove_dead(worker)
                continue
            if event is not None:
                self._watch(name, event)
            else:
                self._end(worker, name, outcome)

    def _remove_dead(self, worker: _Worker) -> None:
        self._alive.remove(worker)
        worker.process.join()
        failure = HoldfastError(f"its process ended with exit code {worker.process.exitcode}")
        for name in sorted(worker.running):
            self._watch(name, RunFailed(str(failure)))
            self._end(worker, name, failure)

    def _end(self, worker: _Worker, name: str, outcome: Outcome) -> None:
        worker.running.discard(name)
        self._found[name] = outcome
        self._ended(name)


@contextlib.contextmanager
def _started_workers(
    folder: Path, shared: SharedData, options: SweepOptions, threads: Sequence[int]
) -> Iterator[list[_Worker]]:
    """One process per entry of ``threads``. At the end of the block they finish; after an exception they are killed."""
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    on_cpu = options.device.type == "cpu"
    torch_threads = max(1, torch.get_num_threads() // len(threads)) if on_cpu else None
    workers = []
    try:
        for count in threads:
            here, there = context.Pipe()
            arguments = (there, folder, shared.root, shared.models, options, count, torch_threads)
            process = context.Process(target=_work, args=arguments, daemon=True)
            process.start()
            there.close()  # the pipe then ends when the process ends
            workers.append(_Worker(process, here, count))
        yield workers
        for worker in workers:
            worker.send(NO_MORE)
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
    options: SweepOptions,
    threads: int,
    torch_threads: int | None,
) -> None:
    """The main function of a worker: carry out the runs that arrive on ``connection``, send events and results."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent sends STOP
    if torch_threads is not None:
        torch.set_num_threads(torch_threads)
    shared, cancel, sending = SharedData(data, models), Cancellation(), threading.Lock()

    def send(name: str, event: Event | None, outcome: Outcome | None = None) -> None:
        with sending, contextlib.suppress(OSError):  # the parent has died; the loop below then ends
            connection.send((name, event, outcome))

    def send_result(name: str, done: Future[Outcome]) -> None:
        send(name, None, done.result())

    with RunThreads(options.device, threads, cancel) as pool:
        while (message := _next_message(connection)) != NO_MORE:
            if message == STOP:
                cancel.cancel()
                continue
            future = _submit(pool, message, folder, shared, options, on_event=partial(send, message.name))
            future.add_done_callback(partial(send_result, message.name))
        cancel.cancel()


def _next_message(connection: Connection) -> Any:
    try:
        return connection.recv()
    except (EOFError, OSError):  # the parent was killed; with unread events of ours the connection is reset
        return NO_MORE
