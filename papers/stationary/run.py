"""Run cells with the sweep: each leaves its JSON file the moment it ends, and a part of them is a good start."""

import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from holdfast.errors import HoldfastError
from holdfast.experiments.assemble import SharedData
from holdfast.experiments.record import write_record
from holdfast.experiments.sweep import PlannedRun, Watch, run_all
from holdfast.run_folder import RunFolder
from holdfast.storage import read_json, write_json
from papers.stationary.cells import Cell

KEPT_EVERY = 30.0


class DeviceShare:
    """How much of the device's time each run has had: every moment is divided evenly among those that are running.

    Kept in the run folder, so that a run in several parts adds them up: when it ends, however that is, and at its first
    event after ``KEPT_EVERY`` seconds. Training has events some times a second, so a kill forgets little more than
    that; an evaluation has none, and is forgotten whole.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[Path, float] = {}
        self._kept: dict[Path, float] = {}
        self._last = time.monotonic()

    def see(self, folder: RunFolder, event: str) -> float:
        """Note an event of the run in ``folder``; the seconds it has had so far."""
        if event in ("done", "failed"):
            return self.leave(folder)
        file = folder.path / "device_time.json"
        with self._lock:
            now = self._share_out()
            if file not in self._running:
                self._running[file] = _kept_in(file)
                self._kept[file] = now
            seconds = self._running[file]
            # Not at every event: a write that reaches the disk takes longer than a short epoch's steps.
            due = now - self._kept[file] > KEPT_EVERY
            if due:
                self._kept[file] = now
        if due:
            self._keep(folder, file, seconds)
        return seconds

    def leave(self, folder: RunFolder) -> float:
        """The run ended, be it without a word, such as by an interruption; the seconds it has had.

        Of one that was not running nothing is written: its folder may be somebody else's.
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


def planned(cell: Cell, device: torch.device) -> PlannedRun:
    """The cell's run on ``device``.

    A recipe of the tables names the fused kernels, which need a GPU. On another device the run has
    ``train.executor=auto`` instead; it is the same run but for rounding, and its command says so.
    """
    if device.type != "cuda" and cell.recipe["train"]["executor"] == "fused":
        cell = replace(cell, settings=(*cell.settings, "train.executor=auto"))
    return PlannedRun(cell.path.with_suffix("").as_posix(), cell.recipe, cell.command)


def carry_out(
    cells: Sequence[Cell],
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
    """Run ``cells`` in their order, ``parallel`` at a time, for at most ``limit_minutes``; per run metrics or failure.

    What is running when the time is up stops at its next event and goes on behind its last checkpoint when it is
    asked for again; what was waiting is not begun. Features of a finished run are removed once its record is written:
    at 31 tasks and K = 1024 one run's take 4 GB, and the matrices are in the record.
    """
    runs = [planned(cell, device) for cell in cells]
    of = dict(zip([run.name for run in runs], zip(cells, runs), strict=True))
    share, stop = DeviceShare(), threading.Event()

    def leave(name: str) -> None:
        share.leave(RunFolder(out / name))

    def watch_and_record(name: str, event: dict[str, Any]) -> None:
        folder = RunFolder(out / name)
        seconds = share.see(folder, event["event"])
        if event["event"] == "done":
            also = {"gpu_minutes": round(seconds / 60, 2), "runs_at_once": parallel}
            cell, run = of[name]
            write_record(folder, results / cell.path, run.command, also)
            shutil.rmtree(folder.features, ignore_errors=True)
        watch(name, event)

    timer = threading.Timer(60 * limit_minutes, stop.set) if limit_minutes is not None else None
    if timer:
        timer.daemon = True
        timer.start()
    try:
        return run_all(
            runs,
            out,
            shared=shared,
            device=device,
            parallel=parallel,
            processes=processes,
            watch=watch_and_record,
            ended=leave,
            stop=stop,
        )
    finally:
        if timer:
            timer.cancel()
