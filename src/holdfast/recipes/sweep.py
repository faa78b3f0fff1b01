"""Many runs of a few recipes: planned, packed onto one device, each in its own folder."""

import itertools
import shlex
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from holdfast.errors import HoldfastError
from holdfast.methods import METHODS
from holdfast.recipes.assemble import SharedData
from holdfast.recipes.execute import execute
from holdfast.recipes.load import family, find_recipe, read_recipe
from holdfast.recipes.schema import Recipe, check_recipe
from holdfast.run_folder import RunFolder
from holdfast.storage import read_json, write_text

Watch = Callable[[str, dict[str, Any]], None]


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
    sinks: Sequence[str] = (),
    watch: Watch = lambda name, event: None,
    ended: Callable[[str], None] = lambda name: None,
    stop: threading.Event | None = None,
) -> dict[str, dict[str, Any] | HoldfastError]:
    """Carry out the runs, at most ``parallel`` at a time; per run its metrics, or why it failed.

    On a GPU each runs in a thread with a stream of its own; torch has 32, so no more than that go at once. A run that
    fails leaves the others alone, and its traceback in ``error.txt``. Finished runs in the folder are read, not
    repeated; unfinished ones go on where they were.
    Networks with dropout share one stream of random numbers: their runs can be repeated one by one only.
    Once ``stop`` is set, runs end at their next event and none is begun; ``ended`` hears of each, however it ended.
    """
    stop = stop or threading.Event()
    streams = different_streams(lambda: torch.cuda.Stream(device), parallel) if device.type == "cuda" else []
    parallel = len(streams) or parallel
    own = threading.local()  # a thread keeps its stream from run to run, and with it the memory of its graphs

    def begin_thread() -> None:
        own.stream = streams.pop() if streams else None

    def one(run: PlannedRun) -> dict[str, Any] | HoldfastError:
        if stop.is_set():
            return HoldfastError("interrupted")

        def watch_one(event: dict[str, Any]) -> None:
            if stop.is_set() and event["event"] != "done":  # what is finished may be recorded
                raise KeyboardInterrupt
            watch(run.name, event)

        try:
            with torch.cuda.stream(own.stream):  # which does nothing for None
                return _go_on(run, folder, shared, device, sinks, watch_one)
        except KeyboardInterrupt:
            return HoldfastError("interrupted")
        except Exception as error:  # whatever it is, the other runs go on
            write_text(RunFolder(folder / run.name).error, traceback.format_exc())
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            failure = error if isinstance(error, HoldfastError) else HoldfastError(f"{type(error).__name__}: {reason}")
            watch(run.name, {"event": "failed", "text": str(failure)})
            return failure
        finally:
            ended(run.name)

    with _quick_turns(), ThreadPoolExecutor(max_workers=parallel, initializer=begin_thread) as pool:
        futures = {run.name: pool.submit(one, run) for run in runs}
        try:
            return {name: future.result() for name, future in futures.items()}
        except KeyboardInterrupt:
            stop.set()  # each thread ends at its next event, behind its last checkpoint
            pool.shutdown(cancel_futures=True)
            raise


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
    finished = target.metrics.exists() and target.recipe.exists()
    if finished and check_recipe(read_recipe(str(target.recipe))).tables == run.recipe.tables:
        watch({"event": "done"})
        return dict(read_json(target.metrics))
    return execute(run.recipe, target, shared=shared, device=str(device), resume=True, sinks=sinks, watch=watch)
