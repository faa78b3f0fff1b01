"""Execute runs of the study with a sweep. Each finished run is written to its JSON file at once."""

import functools
import multiprocessing
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from holdfast.core.errors import DivergedError, HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.core.storage import read_json, write_json
from holdfast.train.engine import Cancellation
from holdfast.train.events import Event, RunEnded, Watch
from holdfast.train.experiments.assemble import SharedData
from holdfast.train.experiments.schema import Recipe
from papers.stationary.bridge_scores import bridge_scores
from papers.stationary.readings import readings
from papers.stationary.stationarity_measure import theory_numbers
from papers.stationary.study_runs import StudyRun
from papers.stationary.toy_measure import toy_numbers
from papers.sweeps.plan import PlannedRun
from papers.sweeps.record import write_divergence, write_record
from papers.sweeps.sweep import SweepOptions, run_all

Measure = Callable[[RunFolder, Recipe, SharedData, torch.device], dict[str, Any]]
MEASURES: dict[str, Measure] = {
    "readings": readings,
    "bridged": bridge_scores,
    "theory": theory_numbers,
    "toy": toy_numbers,
}
"""What a record may have besides the scores of its run: name -> function of the finished run's folder."""


def measured(
    names: Sequence[str], folder: RunFolder, recipe: Recipe, shared: SharedData, device: torch.device
) -> dict[str, Any]:
    return {name: MEASURES[name](folder, recipe, shared, device) for name in names}


def measured_in_process(
    names: Sequence[str], folder: RunFolder, recipe: Recipe, root: Path | None, models: Path, device: torch.device
) -> dict[str, Any]:
    """As ``measured``, in a process of its own, which reads the data once for all its runs."""
    return measured(names, folder, recipe, _data_of_process(root, models), device)


@functools.cache
def _data_of_process(root: Path | None, models: Path) -> SharedData:
    return SharedData(root, models)


def measuring_processes(runs: Sequence[StudyRun], device: torch.device) -> ProcessPoolExecutor | None:
    """Processes for ``measures`` beside training on a GPU; None if there is nothing to measure, or no GPU.

    Measures are many short operations. In threads of the process that trains, each would wait for the threads that
    train.
    """
    if device.type != "cuda" or not any(run.measures for run in runs):
        return None
    return ProcessPoolExecutor(RECORDED_AT_ONCE, multiprocessing.get_context("spawn"))  # CUDA does not survive a fork


KEPT_EVERY = 30.0
RECORDED_AT_ONCE = 2


class DeviceShare:
    """The device time of each run: time is divided evenly among the runs that are active.

    The time is saved in the run folder, so that a resumed run adds to it: when the run ends, and at its first event
    after ``KEPT_EVERY`` seconds. Training has several events per second, so a killed run loses little more than that.
    An evaluation has no events; if it is killed, its time is lost.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[Path, float] = {}
        self._kept: dict[Path, float] = {}
        self._last = time.monotonic()

    def see(self, folder: RunFolder, event: str) -> float:
        """Count an event of the run in ``folder``. Returns its seconds so far."""
        if event in ("done", "failed"):
            return self.leave(folder)
        file = folder.path / "device_time.json"
        with self._lock:
            now = self._share_out()
            if file not in self._running:
                self._running[file] = _kept_in(file)
                self._kept[file] = now
            seconds = self._running[file]
            # Not at every event: a write to disk takes longer than the steps of a short epoch.
            due = now - self._kept[file] > KEPT_EVERY
            if due:
                self._kept[file] = now
        if due:
            self._keep(folder, file, seconds)
        return seconds

    def leave(self, folder: RunFolder) -> float:
        """Stop counting a run that ended or was interrupted. Returns its seconds.

        Nothing is written for a run that was not active: its folder may belong to another process.
        """
        file = folder.path / "device_time.json"
        with self._lock:
            self._share_out()
            seconds = self._running.pop(file, None)
        if seconds is None:
            return _kept_in(file)
        self._keep(folder, file, seconds)
        return seconds

    def _share_out(self) -> float:
        now = time.monotonic()
        for file in self._running:
            self._running[file] += (now - self._last) / len(self._running)
        self._last = now
        return now

    def _keep(self, folder: RunFolder, file: Path, seconds: float) -> None:
        if folder.recipe.exists():
            write_json(file, {"seconds": round(seconds, 3)})


def _kept_in(file: Path) -> float:
    return float(read_json(file)["seconds"]) if file.exists() else 0.0


def planned_run(run: StudyRun, device: torch.device) -> PlannedRun:
    """The run as the sweep takes it, for ``device``.

    The recipes of the tables name the fused kernels, which need a GPU. On another device the run has
    ``train.executor=auto`` instead. It is the same run up to rounding, and its command contains the change.
    """
    if device.type != "cuda" and run.recipe["train"]["executor"] == "fused":
        run = replace(run, settings=(*run.settings, "train.executor=auto"))
    return PlannedRun(run.path.with_suffix("").as_posix(), run.recipe, run.command)


def execute_runs(
    runs: Sequence[StudyRun],
    out: Path,
    results: Path,
    *,
    shared: SharedData,
    device: torch.device,
    parallel: int,
    processes: int = 1,
    limit_minutes: float | None = None,
    watch: Watch = lambda name, event: None,
) -> dict[str, dict[str, Any] | HoldfastError]:
    """Execute ``runs`` in order, ``parallel`` at a time. Returns the metrics or the error of each run, by name.

    runs: the runs to execute.
    out: folder of the run folders.
    results: folder of the JSON files.
    shared: the data, read once for all runs.
    device: where to train.
    parallel: runs at a time.
    processes: processes to distribute the runs over.
    limit_minutes: runs that are active after this time stop at their next event and can be resumed from their last
        checkpoint; waiting runs are not started. None: no limit.
    watch: called with the name of a run and each of its events.

    The record of a run has its ``measures`` too. They are computed beside the training of the runs that follow, on a
    GPU in processes of their own. Then the features of the run are removed: at 31 tasks and K = 1024 they take 4 GB. A
    run that diverges is recorded without scores and not run again.
    """
    planned = [planned_run(run, device) for run in runs]
    by_name = {own.name: (run, own) for run, own in zip(runs, planned, strict=True)}
    share, cancel = DeviceShare(), Cancellation()
    pool, recorded = ThreadPoolExecutor(RECORDED_AT_ONCE), dict[str, Future[None]]()
    measuring = measuring_processes(runs, device)

    def leave(name: str) -> None:
        share.leave(RunFolder(out / name))

    def record(name: str, event: RunEnded, seconds: float) -> None:
        folder, (run, own) = RunFolder(out / name), by_name[name]
        also: dict[str, Any] = {"gpu_minutes": round(seconds / 60, 2), "runs_at_once": parallel}
        if measuring is not None and run.measures:
            arguments = (run.measures, folder, own.recipe, shared.root, shared.models, device)
            also |= measuring.submit(measured_in_process, *arguments).result()
        else:
            also |= measured(run.measures, folder, own.recipe, shared, device)
        write_record(folder, results / run.path, own.command, also)
        shutil.rmtree(folder.features, ignore_errors=True)
        watch(name, event)

    def watch_and_record(name: str, event: Event) -> None:
        seconds = share.see(RunFolder(out / name), event.kind)
        if isinstance(event, RunEnded):
            recorded[name] = pool.submit(record, name, event, seconds)
        else:
            watch(name, event)

    timer = threading.Timer(60 * limit_minutes, cancel.cancel) if limit_minutes is not None else None
    if timer:
        timer.daemon = True
        timer.start()
    try:
        with measuring or nullcontext(), pool:
            found = run_all(
                planned,
                out,
                SweepOptions(device, parallel, processes),
                shared=shared,
                watch=watch_and_record,
                ended=leave,
                cancel=cancel,
            )
        for name, outcome in found.items():
            if isinstance(outcome, DivergedError):
                run, own = by_name[name]
                write_divergence(RunFolder(out / name), results / run.path, own.command, str(outcome))
        for name, one in recorded.items():
            if (error := one.exception()) is not None:  # the others keep their records
                found[name] = HoldfastError(f"the record of {name} failed: {type(error).__name__}: {error}")
        return found
    finally:
        if timer:
            timer.cancel()
