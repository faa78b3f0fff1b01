"""How many runs fit on the GPU, predicted before they start; and the peak memory while they run."""

import json
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from holdfast.core.wording import counted

if TYPE_CHECKING:
    import torch

    from holdfast.core.errors import HoldfastError
    from holdfast.train.data.device_images import Images
    from holdfast.train.events import Event, Watch
    from holdfast.train.experiments.assemble import SharedData
    from papers.sweeps.plan import PlannedRun


IGNORED_SCENARIO_KEYS = ("tasks", "order_seed")
"""Scenario settings that do not make two runs different in kind. Of these only the tasks change the memory of a run."""


@dataclass(frozen=True)
class Capacity:
    """parallel: how many runs are carried out at the same time.
    predicted: bytes of the whole device that will then be in use; None without a GPU, or if no run could be tried.
    """

    parallel: int
    predicted: int | None = None


@dataclass(frozen=True)
class _Trial:
    run: "PlannedRun"
    each: int
    images: "Images"
    image_bytes: int


def sweep_capacity(
    planned: "Sequence[PlannedRun]",
    shared: "SharedData",
    device: "torch.device",
    wanted: int,
    processes: int,
    quiet: bool,
) -> Capacity:
    """How many runs the device can carry out at the same time; an error if a single run does not fit.

    planned: the runs.
    wanted: the number of parallel runs that was requested.
    processes: how many processes share them.
    quiet: do not print the result on stderr.

    On a GPU the number is limited by memory and CUDA streams.
    """
    if device.type != "cuda":
        return Capacity(wanted)
    import torch

    from holdfast.train.cuda_streams import PER_PRIORITY
    from papers.sweeps.gpu_memory import PER_PROCESS, how_many_fit

    wanted = min(wanted, processes * PER_PRIORITY)
    tried = [found for run in largest_of_each_kind(planned) if (found := _try_run(run, shared, device))]
    if not tried:  # each run reports its own error when it starts
        return Capacity(wanted)
    largest = max(tried, key=lambda one: one.each)
    resident = max(0 if one.images.streamed else one.image_bytes for one in tried)
    # With several processes this one only waits, but it has the images too.
    further = min(processes, wanted) if processes > 1 else 0
    beside = further * (PER_PROCESS + resident)
    fit = how_many_fit(wanted, largest.each, device, beside=beside)
    free, total = torch.cuda.mem_get_info(device)
    if fit < 1:
        kept = f", {_gb(beside)} GB of them for {counted(further, 'process')}" if further else ""
        what = f"takes about {_gb(largest.each)} GB of device memory, and {_gb(free)} of {_gb(total)} GB are free{kept}"
        raise _refused(largest.run, what, largest.images, further)
    if not quiet:
        waiting = f"; {len(planned) - fit} wait" if fit < len(planned) else ""
        runs = counted(fit, "run")
        typer.echo(f"{runs} at once, about {_gb(largest.each)} GB of device memory each{waiting}", err=True)
    return Capacity(fit, total - free + beside + fit * largest.each)


def largest_of_each_kind(planned: "Iterable[PlannedRun]") -> "list[PlannedRun]":
    """Of runs that differ only in seed, order and number of tasks, the one with most tasks: it stores most features."""
    kinds: dict[str, PlannedRun] = {}
    for run in planned:
        tables = run.recipe.tables
        scenario = {key: value for key, value in tables["scenario"].items() if key not in IGNORED_SCENARIO_KEYS}
        others = {key: tables[key] for key in tables if key not in ("title", "seed", "scenario", "evaluation")}
        tested = [tables["evaluation"][key] for key in ("batch_size", "compact")]
        kind = json.dumps([others, scenario, tested], sort_keys=True, default=str)
        if kind not in kinds or _tasks(run) > _tasks(kinds[kind]):
            kinds[kind] = run
    return list(kinds.values())


def _tasks(run: "PlannedRun") -> int:
    return run.recipe["scenario"].get("tasks") or 0  # without it the increment decides, which is equal in a kind


def _try_run(run: "PlannedRun", shared: "SharedData", device: "torch.device") -> _Trial | None:
    """The memory of one run; None if the run cannot be built, which it reports itself when it starts."""
    import torch

    from holdfast.core.errors import HoldfastError
    from holdfast.train.experiments.assemble import assemble
    from papers.sweeps.gpu_memory import bytes_per_run

    free, total = torch.cuda.mem_get_info(device)
    images = None
    try:
        experiment = assemble(run.recipe, shared)
        images = shared.images(experiment.data.train, device, experiment.options.images)
        tested = run.recipe["evaluation"]
        each = bytes_per_run(experiment, images, tested["batch_size"], compact=tested["compact"])
        return _Trial(run, each, images, experiment.data.train.images.nbytes)
    except torch.OutOfMemoryError:
        what = f"took more than the {_gb(free)} of {_gb(total)} GB of device memory that were free"
        raise _refused(run, what, images, 0) from None
    except HoldfastError:
        return None


def _refused(run: "PlannedRun", what: str, images: "Images | None", processes: int) -> "HoldfastError":
    from holdfast.core.errors import HoldfastError

    remedies = ["make train.batch_size or evaluation.batch_size smaller"]
    if images is None or not images.streamed:
        remedies.append("set train.images=stream")
    if processes:
        remedies.append("use fewer --processes")
    return HoldfastError(f"{run.name}: a single run {what}; {', '.join(remedies)}, or free the device")


def _gb(count: int) -> str:
    return f"{count / 1e9:.2f}"


MEASURE_SECONDS = 1.0
"""Seconds between two measurements of memory."""


class PeakMemory:
    """Passes events on and measures the memory in use on the device, at most once in ``MEASURE_SECONDS``.

    Memory of other programs is included. A peak between two measurements is missed.
    """

    def __init__(self, device: "torch.device", watch: "Watch") -> None:
        self.bytes = 0
        self._device, self._watch = device, watch
        self._lock = threading.Lock()
        self._next = time.monotonic()

    def __call__(self, name: str, event: "Event") -> None:
        if self._device.type == "cuda":
            self._measure()
        self._watch(name, event)

    def _measure(self) -> None:
        import torch

        with self._lock:
            if time.monotonic() < self._next:
                return
            self._next = time.monotonic() + MEASURE_SECONDS
            free, total = torch.cuda.mem_get_info(self._device)
            self.bytes = max(self.bytes, total - free)

    def print(self, predicted: int | None) -> None:
        """Print the peak on stderr, if there was a measurement."""
        if self.bytes:
            beside = f" ({predicted / 1e9:.2f} GB predicted)" if predicted is not None else ""
            typer.echo(f"at most {self.bytes / 1e9:.2f} GB of the device in use{beside}", err=True)
