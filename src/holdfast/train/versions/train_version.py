"""Train one version in its folder, check it against older ones, and write it; a killed process can resume."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from holdfast.core.checksums import CHECKSUM_FILE, verify_checksums, write_checksums
from holdfast.core.environment import describe
from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.core.saved_samples import BUFFER, HELD_OUT
from holdfast.core.storage import (
    TEMPORARY,
    check_file_writable,
    read_json,
    remove_temporaries,
    write_array,
    write_json,
    write_text,
)
from holdfast.reports import check_report, write_report
from holdfast.train.data.device_images import Images, place_images
from holdfast.train.data.sampler import steps_per_epoch
from holdfast.train.encoders import Encoder, Input
from holdfast.train.encoders.accuracy_record import HELD_OUT_CLASSES, with_advice
from holdfast.train.engine import RunControl, TaskInputs, buffer_features, train_task
from holdfast.train.engine.checkpoint import CheckpointFile, restore_method
from holdfast.train.engine.kept_features import BufferFeatures
from holdfast.train.events import (
    Event,
    EventLog,
    FeaturesBegan,
    Note,
    RunEnded,
    RunWarning,
    TaskBegan,
    TaskEvent,
    TasksPlanned,
)
from holdfast.train.methods import Method
from holdfast.train.run_session import RunSession
from holdfast.train.scenarios import Task, next_task
from holdfast.train.tensor_files import read_torch, write_torch
from holdfast.train.toml_text import to_toml
from holdfast.train.versions.accuracy import (
    ClassTrial,
    LabelledSamples,
    describe_trials,
    known_class_accuracy,
    plan_trials,
    run_trials,
)
from holdfast.train.versions.parent import METHOD, TRAINED, Parent
from holdfast.train.versions.plan import Plan
from holdfast.train.versions.samples import unique_labels
from holdfast.train.versions.settings import VersionSettings
from holdfast.train.versions.version_check import check_evidence, check_versions

REQUEST, TRIALS = "update.json", "trials.json"
VERDICT, PAGE, MAP, KEPT = "check.json", "check.html", "space_map.safetensors", "kept"


@dataclass(frozen=True, eq=False)
class VersionJob:
    """Everything that decides how a version comes out.

    settings: how it is trained.
    plan: its data.
    preprocess: of the new model.
    parent: the model before; None for the first version.
    make_encoder: builds the network that training starts with.
    replace_with: name of the backbone, or name and hash of the model, that replaces the parent's network.
    new_buffer: whether the buffer is not the one that the parent replayed.
    max_loss: the loss that the check accepts; None for the default.
    """

    settings: VersionSettings
    plan: Plan
    preprocess: Input
    parent: Parent | None
    make_encoder: Callable[[], Encoder]
    replace_with: str | dict[str, str] | None = None
    new_buffer: bool = False
    max_loss: float | None = None

    def request(self) -> dict[str, Any]:
        """What the job consists of, by content. A folder with the same request can be resumed."""
        plan = self.plan
        return {
            "version": plan.task.number,
            "from": self.parent.record() if self.parent else None,
            "replace_with": self.replace_with,
            "images": {"new": plan.num_trained, "fingerprint": plan.fingerprint},
            "classes": list(plan.classes),
            "buffer": [one.sha256 for one in plan.buffer.samples],
            "judged": sorted(one.sha256 for one in plan.checked.samples),
            "embed_buffer": plan.buffer.embedded is not None,
            "max_loss": self.max_loss,
            "recipe": self.settings.tables(),
        }


ALL_FROZEN = (
    "the whole network is frozen and has no projection, so training cannot change its vectors; to adapt them, freeze "
    "fewer parts, or embed the images and train a head on their vectors"
)


def train_version(job: VersionJob, out: Path, device: torch.device, control: RunControl) -> dict[str, Any]:
    """Train into ``out``, unless the version there is complete. Returns the model's ``info``."""
    folder, request, parent, plan = RunFolder(out), job.request(), job.parent, job.plan
    finished = _finished(folder, request, control)
    if finished is not None:
        return finished
    # Unreadable held-out files are refused before the training: every later version would need them.
    reader = job.settings.check_reader(job.preprocess)
    pixels = plan.checked.pixels(reader, "held-out")
    encoder, task, method = job.make_encoder(), plan.task, job.settings.build_method()
    if encoder.frozen and not any(parameter.requires_grad for parameter in encoder.parameters()):
        control.on_event(RunWarning(ALL_FROZEN))
    old = _reference(parent, encoder)
    if old is None:
        task = replace(task, reference="none")  # features of two sizes cannot be compared
        plan = replace(plan, task=task)
        job = replace(job, plan=plan)
        if parent is not None:
            control.on_event(Note(_sizes_differ(parent.encoder.dim, encoder.dim)))
    if parent and parent.number:
        restore_method(method, _task_before(parent, task), encoder.dim, parent.method_state)
    with folder.locked():
        finished = _finished(folder, request, control)  # by another process, meanwhile
        if finished is not None:
            return finished
        remove_temporaries(out)
        write_json(out / REQUEST, request)
        write_text(folder.recipe, to_toml(request["recipe"]))
        RunSession(folder, describe(str(device))).record()
        event_log, checkpoint = EventLog(folder.log), CheckpointFile(folder.checkpoint)

        def on_event(event: Event) -> None:
            event_log(event)
            if isinstance(event, TaskBegan) and event.step:
                control.on_event(Note(f"training is resumed after step {event.step:,}"))
            # One version is one task for the progress display, whatever its number; trials come before it.
            control.on_event(replace(event, task=shown_task) if isinstance(event, TaskEvent) else event)

        options = job.settings.fit
        images = place_images(plan.images, device, options.images)
        counts = len(task.new_indices), len(task.buffer_indices)
        planned = plan_trials(plan, job.settings) if parent is None and plan.images.holds_vectors else []
        trials = [] if isinstance(planned, str) else planned
        shown_task = len(trials) + 1
        steps = options.epochs * steps_per_epoch(*counts, options.batch_size)
        control.on_event(TasksPlanned([*(one.steps for one in trials), steps]))
        unseen = _measured_trials(job, trials, folder, pixels, device, control)
        if isinstance(planned, str):
            unseen = {HELD_OUT_CLASSES: {"not_measured": planned}}
        past = _past_features(method, job, images, encoder.dim)
        inputs = TaskInputs(encoder, method, task, images, old, past, plan.next_rows)
        features = train_task(inputs, options, checkpoint=checkpoint, control=replace(control, on_event=on_event))
        control.on_event(FeaturesBegan(shown_task))
        before = _network_before(job) if parent is None else None
        known = known_class_accuracy(encoder, _held_out(plan, pixels), _trained(plan), device, before=before)
        accuracy = {**known, **unseen} if parent else with_advice({**known, **unseen})
        verdict = None
        if parent is not None:
            labels = unique_labels(reader, plan.checked.samples)
            verdict = check_versions(
                parent, encoder, plan.checked.samples, pixels, labels, max_loss=job.max_loss, device=device
            )
        # Rows are positions in the next version's buffer: its images come first in its training set.
        newest = None if features is None else BufferFeatures(torch.arange(len(features.rows)), features.features)
        past = [] if newest is None else [*past, newest]
        (out / TRIALS).unlink(missing_ok=True)
        info = _write_version(out, job, encoder, method, past, accuracy, verdict)
        checkpoint.clear()
    control.on_event(RunEnded())
    return info


def _write_version(
    out: Path,
    job: VersionJob,
    encoder: Encoder,
    method: Method,
    past: Sequence[BufferFeatures],
    accuracy: dict[str, Any],
    verdict: dict[str, Any] | None,
) -> dict[str, Any]:
    """Write the trained version into ``out``; returns the model's ``info``. A folder without the seal is not complete.

    past: features of the next version's buffer under every version so far, for methods that read them.
    accuracy: what was measured on held-out samples.
    verdict: what ``check_versions`` found; None for the first version.
    """
    plan, parent = job.plan, job.parent
    write_torch(out / METHOD, method.state_dict())
    plan.buffer.save(out, BUFFER)
    plan.held_out.save(out, HELD_OUT)
    write_array(out / TRAINED, plan.trained)
    for number, one in enumerate(past, start=1):
        write_torch(out / KEPT / f"{number:03d}.safetensors", one._asdict())
    space_map = method.space_map()
    if space_map is not None:
        space_map.save(out / MAP)
        if verdict is not None:
            note = f"checked without {MAP}: this method's stored vectors must pass through it at every update"
            verdict = {**verdict, "notes": [*verdict.get("notes", []), note]}
    if verdict is not None:
        write_json(out / VERDICT, verdict)
        if "queries" in verdict:
            write_report(check_report(verdict), out / PAGE)
    stale = ("parent", "accuracy", "evidence", "data", "training_set")
    encoder.info = {
        **{key: value for key, value in encoder.info.items() if key not in stale},
        "task": plan.task.number,
        "start": plan.task.start,
        "reference": plan.task.reference,
        "method": job.settings.method["name"],
        # ``fit`` recorded the slots of a simplex. Without one, versions list their classes under the same key.
        **({"slots": plan.task.registry.to_json()} if method.num_slots is None else {}),
        "classes": list(plan.classes),
        "data": {
            "images": plan.num_trained,
            **({"of": "vectors"} if plan.images.holds_vectors else {}),
            "classes": len({int(label) for label in plan.images.labels[plan.task.new_indices]}),
            "new_classes": plan.task.num_new,
            "replayed": len(plan.task.buffer_indices),
            "fingerprint": plan.fingerprint,
            **({"skipped": plan.skipped} if plan.skipped else {}),
        },
        **({"parent": parent.record()} if parent else {}),
        **({"accuracy": accuracy} if accuracy else {}),
        **({"evidence": check_evidence(verdict, parent.record())} if parent and verdict else {}),
    }
    encoder.write_into(out)
    write_checksums(out)
    return encoder.info


def _measured_trials(
    job: VersionJob,
    trials: list[ClassTrial],
    folder: RunFolder,
    pixels: np.ndarray,
    device: torch.device,
    control: RunControl,
) -> dict[str, Any]:
    """The accuracy on held-out classes: ``{"held-out classes": record}``, empty if there are no trials.

    pixels: what was read of the held-out samples.

    The record is kept in the folder until the version is written: a resumed training does not repeat the trials.
    """
    if not trials:
        return {}
    path = folder.path / TRIALS
    if not path.exists():
        control.on_event(Note(describe_trials(trials)))
        held_out, trained = _held_out(job.plan, pixels), _trained(job.plan)
        samples = LabelledSamples(
            np.concatenate([held_out.pixels, trained.pixels]),
            np.concatenate([held_out.class_names, trained.class_names]),
        )
        write_json(path, run_trials(trials, job.make_encoder, samples, device, control))
    return {HELD_OUT_CLASSES: read_json(path)}


def _reference(parent: Parent | None, encoder: Encoder) -> nn.Module | None:
    """The model that the loss compares with."""
    if parent is None or parent.encoder.dim != encoder.dim:
        return None
    return parent.encoder


def _network_before(job: VersionJob) -> Encoder | None:
    """The network with the trained weights that it begins with; None if it begins with random ones."""
    if not job.settings.has_trained_weights():
        return None
    made = job.make_encoder()
    return Encoder(made.backbone, preprocess=made.preprocess, feature_dim=made.feature_dim).eval()


def _sizes_differ(old: int, new: int) -> str:
    return (
        f"the new network's features have {new:,} numbers and the old one's {old:,}, so training cannot compare them; "
        "the old vectors can be searched through a bridge only"
    )


def _held_out(plan: Plan, pixels: np.ndarray) -> LabelledSamples:
    return LabelledSamples(pixels, np.array([one.class_name for one in plan.checked.samples]))


def _trained(plan: Plan) -> LabelledSamples:
    return LabelledSamples(plan.images.images, np.array(plan.images.class_names)[plan.images.labels])


def _past_features(method: Method, job: VersionJob, images: Images, dim: int) -> list[BufferFeatures]:
    """Features that past versions gave the buffered images, for methods that read them; rows never change.

    If the buffer is a new one, or if no features of size ``dim`` are saved, they are computed by the parent alone.
    """
    parent, buffer = job.parent, job.plan.task.buffer_indices
    if parent is None or not method.reads_kept or not len(buffer):
        return []
    files = [] if job.new_buffer else sorted((parent.folder / KEPT).glob("*.safetensors"))
    past = [BufferFeatures(**read_torch(file)[0]) for file in files]
    if not any(one.features.shape[1] == dim for one in past):
        past = [buffer_features(parent.encoder.to(images.device), images, buffer)]
    return past


def _finished(folder: RunFolder, request: dict[str, Any], control: RunControl) -> dict[str, Any] | None:
    """The ``info`` of the version if it is complete, else None. A folder of another job is refused."""
    _refuse_other_job(folder.path, request)
    if not (folder.path / CHECKSUM_FILE).exists():
        return None
    verify_checksums(folder.path)
    if folder.checkpoint.exists():  # left by a kill after the version was written
        CheckpointFile(folder.checkpoint).clear()
    control.on_event(RunEnded())
    return Encoder.from_pretrained(folder.path).info


def refuse_other_folder(out: Path) -> None:
    """Refuse a path with anything but a version, finished or begun, and a place that may not be written to."""
    if out.exists() and not out.is_dir():
        raise HoldfastError(f"{out}: not a folder; choose another --out")
    if out.exists() and not (out / REQUEST).exists():
        lock = RunFolder(out).lock
        if any(entry != lock and not entry.name.startswith(TEMPORARY) for entry in out.iterdir()):
            raise HoldfastError(f"{out}: not empty and not an unfinished version; choose another --out")
    if not (out / CHECKSUM_FILE).exists():  # a finished version is only read
        check_file_writable(out / REQUEST)


def _refuse_other_job(out: Path, request: dict[str, Any]) -> None:
    """Refuse a folder that holds anything but the beginning of this same job."""
    refuse_other_folder(out)
    if not (out / REQUEST).exists():
        return
    before = read_json(out / REQUEST)
    if before != request:
        differences = ", ".join(_differences(before, request))
        raise HoldfastError(f"{out}: holds another version (different: {differences}); choose another --out")


def _differences(before: Any, request: dict[str, Any]) -> list[str]:
    """Keys of ``request`` with other values than in ``before``; for the recipe, its keys."""
    if not isinstance(before, dict):
        return ["everything"]
    found = [key for key in request if key != "recipe" and before.get(key) != request[key]]
    old_recipe: Any = before.get("recipe")
    new_recipe = request["recipe"]
    for table in new_recipe if isinstance(old_recipe, dict) else ():
        old, new = old_recipe.get(table), new_recipe[table]
        if isinstance(old, dict) and isinstance(new, dict):
            found += [f"{table}.{key}" for key in {**old, **new} if old.get(key) != new.get(key)]
        elif old != new:
            found.append(table)
    return found or ["recipe"]


def _task_before(parent: Parent, task: Task) -> Task:
    """The parent's task, as far as its method's shapes depend on it."""
    seen = len(parent.classes)
    data = parent.info.get("data")
    new = int(data["new_classes"]) if isinstance(data, dict) and "new_classes" in data else seen
    before = next_task(
        parent.number,
        parent.classes,
        seen - new,
        task.registry,
        new_indices=np.arange(0),
        buffer_indices=np.arange(0),
    )
    start, reference = (parent.info.get(key, getattr(before, key)) for key in ("start", "reference"))
    return replace(before, start=start, reference=reference)
