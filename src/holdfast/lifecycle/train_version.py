"""The work on one version in its folder: train, judge, write; the same command goes on after a kill."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from holdfast.checksums import SEAL, refuse_broken_seal
from holdfast.data.device_images import place
from holdfast.data.sampler import steps_per_epoch
from holdfast.encoders import Encoder, Preprocess, VectorInput
from holdfast.environment import describe
from holdfast.errors import HoldfastError
from holdfast.experiments.record import Sitting
from holdfast.experiments.schema import Recipe
from holdfast.lifecycle.inputs import reader_to_judge
from holdfast.lifecycle.parent import Parent
from holdfast.lifecycle.plan import Plan
from holdfast.lifecycle.write import judge, kept_features, remembered, write_version
from holdfast.methods import Method
from holdfast.run_folder import RunFolder
from holdfast.scenarios import Task
from holdfast.storage import TEMPORARY, read_json, sweep_temporaries, write_json, write_text
from holdfast.training import FitOptions, fit
from holdfast.training.checkpoint import CheckpointFile, restore_method
from holdfast.training.event_log import Journal

Log = Callable[[dict[str, Any]], None]
REQUEST = "update.json"


@dataclass(frozen=True, eq=False)
class Making:
    """All that decides what comes out, checked and laid out."""

    recipe: Recipe
    options: FitOptions
    plan: Plan
    preprocess: Preprocess | VectorInput
    parent: Parent | None
    replace_with: str | dict[str, str] | None = None
    new_buffer: bool = False
    min_gain: float = 0.0

    def request(self) -> dict[str, Any]:
        """What was asked for, by content: a folder that holds part of the same work may be gone on with."""
        plan = self.plan
        return {
            "version": plan.task.number,
            "from": self.parent.record() if self.parent else None,
            "replace_with": self.replace_with,
            "images": {"new": plan.num_trained, "fingerprint": plan.fingerprint},
            "buffer": [one.sha256 for one in plan.buffer.pictures],
            "judged": sorted(one.sha256 for one in plan.judged.pictures),
            "embed_buffer": plan.buffer.embedded is not None,
            "min_gain": self.min_gain,
            "recipe": dict(self.recipe.tables),
        }


def make(
    making: Making,
    out: Path,
    method: Method,
    first_encoder: Callable[[], Encoder],
    device: torch.device,
    watch: Log,
) -> dict[str, Any]:
    """Train into ``out`` unless it is done there already; what ``config.json`` then says in ``info``."""
    folder, request, parent, plan = RunFolder(out), making.request(), making.parent, making.plan
    _claim(folder, request)
    if (out / SEAL).exists():
        refuse_broken_seal(out)
        watch({"event": "done"})
        return Encoder.from_pretrained(out).info
    reader = reader_to_judge(making.recipe, making.preprocess)
    # Bad files are refused before the work, by the first version too: held out, they would be in every later one's way.
    judged = plan.judged.pixels(reader, "held-out images")
    encoder, task = first_encoder(), plan.task
    old = parent.encoder if parent and parent.encoder.dim == encoder.dim else None
    if old is None:
        task = replace(task, reference="none")  # features of two sizes cannot be compared
        plan = replace(plan, task=task)
    if parent and parent.number:
        restore_method(method, _task_before(parent, task), encoder.dim, parent.method_state)
    with folder.held():
        sweep_temporaries(out)
        write_json(out / REQUEST, request)
        write_text(folder.recipe, making.recipe.to_toml())
        Sitting(folder, describe(str(device))).note()
        journal, checkpoint = Journal(folder.log), CheckpointFile(folder.checkpoint)

        def log(event: dict[str, Any]) -> None:
            journal(event)
            watch({**event, "task": 1} if "task" in event else event)  # of this sitting, whatever the version

        images = place(plan.images, device, making.options.images)
        options = making.options
        counts = len(task.new_indices), len(task.buffer_indices)
        watch({"event": "plan", "steps": [options.epochs * steps_per_epoch(*counts, options.batch_size)]})
        kept, past = kept_features(method, task, images, parent, encoder.dim, anew=making.new_buffer)
        fit(encoder, method, task, images, old=old, kept=kept, options=options, log=log, checkpoint=checkpoint)
        watch({"event": "features", "task": 1})
        verdict = None
        if parent is not None:
            verdict = judge(
                parent.encoder,
                encoder,
                plan.judged.pictures,
                judged,
                [reader.called(one) for one in plan.judged.pictures],
                frozenset(parent.classes),
                min_gain=making.min_gain,
                device=device,
            )
        past = remembered(method, encoder, images, plan, past)
        info = write_version(out, encoder, method, plan, making.recipe, parent, verdict, past)
        checkpoint.clear()
    watch({"event": "done"})
    return info


def _claim(folder: RunFolder, request: dict[str, Any]) -> None:
    """Refuse a folder with something else in it; where the same was asked for before, the work goes on."""
    path = folder.path
    if path.exists() and not path.is_dir():
        raise HoldfastError(f"{path}: not a folder; choose another --out")
    if (path / REQUEST).exists():
        before = read_json(path / REQUEST)
        if before != request:
            others = ", ".join(_differences(before, request))
            raise HoldfastError(
                f"{path}: holds a version made of something else (other: {others}); choose another --out"
            )
    elif path.exists() and not all(
        entry == folder.lock or entry.name.startswith(TEMPORARY) for entry in path.iterdir()
    ):
        raise HoldfastError(f"{path}: not empty and not a version in the making; choose another --out")


def _differences(before: Any, request: dict[str, Any]) -> list[str]:
    """The parts of a request that are not as they were; of the recipe the keys."""
    if not isinstance(before, dict):
        return ["all of it"]
    found = [key for key in request if key != "recipe" and before.get(key) != request[key]]
    was: Any = before.get("recipe")
    now = request["recipe"]
    for table in now if isinstance(was, dict) else ():
        old, new = was.get(table), now[table]
        if isinstance(old, dict) and isinstance(new, dict):
            found += [f"{table}.{key}" for key in {**old, **new} if old.get(key) != new.get(key)]
        elif old != new:
            found.append(table)
    return found or ["recipe"]


def _task_before(parent: Parent, task: Task) -> Task:
    """As much of the task before as its method's shapes depend on."""
    seen = tuple(range(len(parent.classes)))
    data = parent.info.get("data")
    new = int(data["new_classes"]) if isinstance(data, dict) and "new_classes" in data else len(seen)
    return Task(
        number=parent.number,
        new_classes=seen[len(seen) - new :],
        seen_classes=seen,
        new_indices=task.buffer_indices,
        buffer_indices=task.buffer_indices,
        registry=task.registry,
        slots=task.slots[: len(seen)],
        start=parent.info.get("start", "scratch" if parent.number == 1 else "previous"),
        reference=parent.info.get("reference", "none" if parent.number == 1 else "previous"),
    )
