"""How many runs the device has room for, found before anything starts; what cannot fit is refused.

The most of a device that was in use while runs went on, whichever process they were in.
"""

import json
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from holdfast.wording import counted

if TYPE_CHECKING:
    import torch

    from holdfast.data.device_images import DeviceImages, StreamedImages
    from holdfast.errors import HoldfastError
    from holdfast.experiments.assemble import SharedData
    from holdfast.experiments.sweep import PlannedRun, Watch


IN_SCENARIO = ("tasks", "order_seed")
"""Settings of a scenario in which runs of one kind may differ: of these only the tasks change what a run takes."""


@dataclass(frozen=True)
class Room:
    """How many runs go at once, and how many bytes of the whole device are then predicted to be in use.

    None: nothing was predicted, without a GPU or where no run could be tried.
    """

    at_once: int
    predicted: int | None = None


@dataclass(frozen=True)
class _Tried:
    run: "PlannedRun"
    each: int
    images: "DeviceImages | StreamedImages"
    image_bytes: int


def what_fits(
    planned: "Sequence[PlannedRun]",
    shared: "SharedData",
    device: "torch.device",
    wanted: int,
    processes: int,
    quiet: bool,
) -> Room:
    """On a GPU no more runs than there are streams and memory for, the others wait; refused where one does not fit."""
    if device.type != "cuda":
        return Room(wanted)
    import torch

    from holdfast.cuda_streams import PER_PRIORITY
    from holdfast.data.device_images import StreamedImages
    from holdfast.experiments.gpu_memory import PER_PROCESS, how_many_fit

    wanted = min(wanted, processes * PER_PRIORITY)
    tried = [found for run in largest_of_each_kind(planned) if (found := _tried(run, shared, device))]
    if not tried:  # each will say for itself why it cannot begin
        return Room(wanted)
    largest = max(tried, key=lambda one: one.each)
    resident = max(0 if isinstance(one.images, StreamedImages) else one.image_bytes for one in tried)
    further = min(processes, wanted) if processes > 1 else 0  # this one, with its own images, only looks on then
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
    return Room(fit, total - free + beside + fit * largest.each)


def largest_of_each_kind(planned: "Iterable[PlannedRun]") -> "list[PlannedRun]":
    """Of runs that differ in seed, order and number of tasks alone, the one with most tasks: it keeps most features."""
    kinds: dict[str, PlannedRun] = {}
    for run in planned:
        tables = run.recipe.tables
        scenario = {key: value for key, value in tables["scenario"].items() if key not in IN_SCENARIO}
        others = {key: tables[key] for key in tables if key not in ("title", "seed", "scenario", "evaluation")}
        tested = [tables["evaluation"][key] for key in ("batch_size", "compact")]
        kind = json.dumps([others, scenario, tested], sort_keys=True, default=str)
        if kind not in kinds or _tasks(run) > _tasks(kinds[kind]):
            kinds[kind] = run
    return list(kinds.values())


def _tasks(run: "PlannedRun") -> int:
    return run.recipe["scenario"].get("tasks") or 0  # without it the increment says, which all of a kind share


def _tried(run: "PlannedRun", shared: "SharedData", device: "torch.device") -> _Tried | None:
    """What one run takes; None where it cannot be told, which the run will say itself and leave the others alone."""
    import torch

    from holdfast.errors import HoldfastError
    from holdfast.experiments.assemble import assemble
    from holdfast.experiments.gpu_memory import bytes_per_run

    free, total = torch.cuda.mem_get_info(device)
    images = None
    try:
        experiment = assemble(run.recipe, shared)
        images = shared.images(experiment.data.train, device, experiment.options.images)
        tested = run.recipe["evaluation"]
        each = bytes_per_run(experiment, images, tested["batch_size"], compact=tested["compact"])
        return _Tried(run, each, images, experiment.data.train.images.nbytes)
    except torch.OutOfMemoryError:
        what = f"took more than the {_gb(free)} of {_gb(total)} GB of device memory that were free when it was tried"
        raise _refused(run, what, images, 0) from None
    except HoldfastError:
        return None


def _refused(
    run: "PlannedRun", what: str, images: "DeviceImages | StreamedImages | None", processes: int
) -> "HoldfastError":
    from holdfast.data.device_images import StreamedImages
    from holdfast.errors import HoldfastError

    ways = ["make train.batch_size or evaluation.batch_size smaller"]
    if not isinstance(images, StreamedImages):
        ways.append("set train.images=stream")
    if processes:
        ways.append("ask for fewer --processes")
    return HoldfastError(f"{run.name}: a single run {what}; {', '.join(ways)}, or free the device")


def _gb(count: int) -> str:
    return f"{count / 1e9:.2f}"


LOOK_SECONDS = 1.0


class PeakMemory:
    """Passes events on and looks at the device meanwhile, at most once in ``LOOK_SECONDS``.

    It sees the device as a whole, with what other programs keep there; a peak between two looks is not seen.
    """

    def __init__(self, device: "torch.device", watch: "Watch") -> None:
        self.bytes = 0
        self._device, self._watch = device, watch
        self._lock = threading.Lock()
        self._next = time.monotonic()

    def __call__(self, name: str, event: dict[str, Any]) -> None:
        if self._device.type == "cuda":
            self._look()
        self._watch(name, event)

    def _look(self) -> None:
        import torch

        with self._lock:
            if time.monotonic() < self._next:
                return
            self._next = time.monotonic() + LOOK_SECONDS
            free, total = torch.cuda.mem_get_info(self._device)
            self.bytes = max(self.bytes, total - free)

    def say(self, predicted: int | None) -> None:
        """One line on stderr, where anything was seen."""
        if self.bytes:
            beside = f" ({predicted / 1e9:.2f} GB predicted)" if predicted is not None else ""
            typer.echo(f"at most {self.bytes / 1e9:.2f} GB of the device in use{beside}", err=True)
