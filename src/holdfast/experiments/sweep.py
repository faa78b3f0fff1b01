"""Many runs of a few recipes: planned, packed onto one device, each in its own folder.

What is kept of a run that failed while others go on.
"""

import itertools
import shlex
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from holdfast.cuda_streams import PER_PRIORITY
from holdfast.errors import HoldfastError
from holdfast.experiments.assemble import SharedData
from holdfast.experiments.execute import claim, execute
from holdfast.experiments.load import family, find_recipe, read_recipe
from holdfast.experiments.schema import Recipe, check_recipe
from holdfast.methods import METHODS
from holdfast.run_folder import FolderRefusedError, RunFolder
from holdfast.storage import read_json, write_text

Watch = Callable[[str, dict[str, Any]], None]
Outcome = dict[str, Any] | HoldfastError
"""What a run found, or why it failed."""


@dataclass(frozen=True)
class PlannedRun:
    """One cell of a sweep; ``name`` is its folder."""

    name: str
    recipe: Recipe
    command: str


def plan(
    sources: Sequence[str],
    *,
    methods: Sequence[str] = (),
    tasks: Sequence[int] = (),
    seeds: Sequence[int] = (),
    settings: Sequence[str] = (),
) -> list[PlannedRun]:
    """Every combination, each recipe checked before any of them runs; an empty list leaves what the recipe says."""
    planned: dict[str, PlannedRun] = {}
    axes: tuple[Sequence[Any], ...] = (sources, methods or [None], tasks or [None], seeds or [None])
    for source, method, count, seed in itertools.product(*axes):
        own = [f"method.name={method}"] if method else []
        own += [f"scenario.tasks={count}"] if count is not None else []
        own += [f"seed={seed}"] if seed is not None else []
        recipe = check_recipe(read_recipe(source, [*own, *settings]))
        name = f"{family(find_recipe(source), METHODS)}-{recipe.short_name}"
        if name in planned:
            raise HoldfastError(f"{source}: two runs of this sweep would be called {name}; leave one of them out")
        changes = (word for setting in [*own, *settings] for word in ("--set", setting))
        command = shlex.join(["holdfast", "run", source, *changes])
        planned[name] = PlannedRun(name, recipe, command)
    return list(planned.values())


def run_all(
    runs: Sequence[PlannedRun],
    folder: Path,
    *,
    shared: SharedData,
    device: torch.device,
    parallel: int,
    processes: int = 1,
    sinks: Sequence[str] = (),
    watch: Watch = lambda name, event: None,
    ended: Callable[[str], None] = lambda name: None,
    stop: threading.Event | None = None,
) -> dict[str, Outcome]:
    """Carry out the runs, at most ``parallel`` at a time; per run its metrics, or why it failed.

    On a GPU each runs in a thread with a stream of its own, so no more than ``PER_PRIORITY`` go at once in one process.
    ``processes`` shares the threads out over several, each with its own copy of the data. A run that fails leaves the
    others alone, and its traceback in ``error.txt``; a folder that is not its own it leaves as it was.
    Finished runs in the folder are read, not repeated; unfinished ones go on where they were.
    Networks with dropout share one stream of random numbers: their runs can be repeated one by one only.
    Once ``stop`` is set, runs end at their next event and none is begun; ``ended`` hears of each, however it ended.
    """
    stop = stop or threading.Event()
    if processes > 1:
        from holdfast.experiments.sweep_processes import run_in_processes

        return run_in_processes(
            runs, folder, shared=shared, device=device, parallel=parallel, processes=processes, sinks=sinks,
            watch=watch, ended=ended, stop=stop,
        )  # fmt: skip

    def one(seats: "Seats", run: PlannedRun) -> Future[Outcome]:
        return seats.submit(run, watch=lambda event: watch(run.name, event), ended=lambda: ended(run.name))

    with Seats(folder, shared=shared, device=device, count=parallel, sinks=sinks, stop=stop) as seats:
        futures = {run.name: one(seats, run) for run in runs}
        try:
            return {name: future.result() for name, future in futures.items()}
        except KeyboardInterrupt:
            stop.set()  # each thread ends at its next event, behind its last checkpoint
            raise


class Seats:
    """Threads that carry out runs, each with a stream of its own, which it keeps from run to run; leaving waits."""

    def __init__(
        self,
        folder: Path,
        *,
        shared: SharedData,
        device: torch.device,
        count: int,
        sinks: Sequence[str],
        stop: threading.Event,
    ) -> None:
        self._folder, self._shared, self._device, self._sinks, self._stop = folder, shared, device, sinks, stop
        streams = []
        if device.type == "cuda":
            streams = different_streams(lambda: torch.cuda.Stream(device), min(count, PER_PRIORITY))
        own = threading.local()  # with its stream a thread keeps the memory of its graphs

        def begin_thread() -> None:
            own.stream = streams.pop() if streams else None

        self._own = own
        self._pool = ThreadPoolExecutor(max_workers=len(streams) or count, initializer=begin_thread)
        self._turns = _quick_turns()

    def __enter__(self) -> "Seats":
        self._turns.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._pool.shutdown(cancel_futures=exception[0] is not None)
        self._turns.__exit__(None, None, None)

    def submit(
        self, run: PlannedRun, *, watch: Callable[[dict[str, Any]], None], ended: Callable[[], None]
    ) -> Future[Outcome]:
        return self._pool.submit(self._one, run, watch, ended)

    def _one(self, run: PlannedRun, watch: Callable[[dict[str, Any]], None], ended: Callable[[], None]) -> Outcome:
        if self._stop.is_set():
            return HoldfastError(INTERRUPTED)

        def watch_until_stopped(event: dict[str, Any]) -> None:
            if self._stop.is_set() and event["event"] != "done":  # what is finished may be recorded
                raise KeyboardInterrupt
            watch(event)

        try:
            with torch.cuda.stream(self._own.stream):  # which does nothing for None
                return _go_on(run, self._folder, self._shared, self._device, self._sinks, watch_until_stopped)
        except KeyboardInterrupt:
            return HoldfastError(INTERRUPTED)
        except Exception as error:  # whatever it is, the other runs go on
            if not isinstance(error, FolderRefusedError):
                write_text(RunFolder(self._folder / run.name).error, traceback.format_exc())
            failure = failure_of(error)
            watch({"event": "failed", "text": str(failure)})
            return failure
        finally:
            ended()


@contextmanager
def _quick_turns() -> Iterator[None]:
    """A thread needs the interpreter for some microseconds at a time; Python would let it wait 5 ms for each turn."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def different_streams(make: Callable[[], torch.cuda.Stream], wanted: int) -> list[torch.cuda.Stream]:
    """As many as ``wanted``, or as there are: torch hands out the same few over and over.

    Two runs on one stream would not only wait for each other: what one does while the other captures its step would
    become a part of that step.
    """
    found: dict[int, torch.cuda.Stream] = {}
    while len(found) < wanted:
        stream = make()
        if stream.cuda_stream in found:
            break
        found[stream.cuda_stream] = stream
    return list(found.values())


def _go_on(
    run: PlannedRun,
    folder: Path,
    shared: SharedData,
    device: torch.device,
    sinks: Sequence[str],
    watch: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    target = RunFolder(folder / run.name)
    claim(run.recipe.tables, target, resume=True, check=lambda raw: check_recipe(raw).tables)
    if target.metrics.exists() and target.recipe.exists():
        watch({"event": "done"})
        return dict(read_json(target.metrics))
    return execute(run.recipe, target, shared=shared, device=str(device), resume=True, sinks=sinks, watch=watch)


INTERRUPTED = "interrupted"
"""All that is said of a run that was stopped: no failure, for the same command again goes on with it."""


def failure_of(error: Exception) -> HoldfastError:
    """The error in one line, without the frames it came through.

    Those hold the run's networks, graphs and streams, and a sweep keeps its failures until the last run has ended.
    """
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    failure = error if isinstance(error, HoldfastError) else HoldfastError(f"{type(error).__name__}: {reason}")
    for each in (error, failure):
        each.__traceback__ = each.__context__ = each.__cause__ = None
    return failure
