"""Train one task from the state the task before left, and all tasks of a scenario from disk to disk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from holdfast.core.run_folder import RunFolder
from holdfast.core.storage import replacing_folder
from holdfast.train.data.device_images import Images
from holdfast.train.encoders import Encoder
from holdfast.train.engine.checkpoint import CheckpointFile, restore_method
from holdfast.train.engine.control import RunControl
from holdfast.train.engine.fit import fit
from holdfast.train.engine.fit_options import FitOptions
from holdfast.train.engine.kept_features import BufferFeatures, KeptFeatures, buffer_features
from holdfast.train.events import TaskEnded
from holdfast.train.methods import Method
from holdfast.train.randomness import GENERATOR_LOCK, derived_seed
from holdfast.train.scenarios import Scenario, Task
from holdfast.train.tensor_files import read_torch, write_torch


@dataclass(frozen=True)
class ScenarioSetup:
    """How the models of a scenario are made and trained.

    make_encoder: makes the encoder of a task that starts from scratch.
    make_method: makes the method, without state; called once per task.
    options: options of every task.
    load_model: gives the models that tasks bring in, by name. Default: reads a model folder.
    """

    make_encoder: Callable[[], Encoder]
    make_method: Callable[[], Method]
    options: FitOptions
    load_model: Callable[[str], Encoder] = Encoder.from_pretrained


@dataclass(frozen=True)
class TaskInputs:
    """What the training of one task starts from.

    encoder: the model to train, in place.
    method: the method with the state of the task before (``restore_method``).
    task: classes, image indices and slots.
    images: the training set that the task's indices point into.
    old: the model that the task must stay compatible with, or None.
    past: features that each past model gave the buffered images; empty for methods that do not read them.
    next_buffer: rows of the training set that the next task will replay; None if there is no next task.
    """

    encoder: Encoder
    method: Method
    task: Task
    images: Images
    old: nn.Module | None = None
    past: Sequence[BufferFeatures] = ()
    next_buffer: np.ndarray | None = None


def train_task(
    inputs: TaskInputs,
    options: FitOptions,
    *,
    checkpoint: CheckpointFile | None = None,
    control: RunControl | None = None,
) -> BufferFeatures | None:
    """Train one task of a scenario or one version of a model, in place; see ``fit``.

    Returns the new model's features of ``inputs.next_buffer``; the next task's ``past`` is this task's plus these.
    None if the method does not read them, and if the next buffer is empty.
    """
    control = control or RunControl()
    encoder, method, task, images = inputs.encoder, inputs.method, inputs.task, inputs.images
    kept = None
    if method.reads_kept and len(task.buffer_indices):
        # Features of another size cannot be compared with this model's. On a simplex all sizes are equal.
        past = [one for one in inputs.past if one.features.shape[1] == encoder.dim]
        kept = KeptFeatures(task, images, past) if past else None
    fit(
        encoder,
        method,
        task,
        images,
        old=inputs.old,
        kept=kept,
        options=options,
        on_event=control.on_event,
        cancel=control.cancel,
        checkpoint=checkpoint,
    )
    if not method.reads_kept or inputs.next_buffer is None or not len(inputs.next_buffer):
        return None
    return buffer_features(encoder, images, inputs.next_buffer)


def train_scenario(
    scenario: Scenario,
    images: Images,
    folder: RunFolder,
    setup: ScenarioSetup,
    *,
    after_task: Callable[[Task, Encoder], None] = lambda task, encoder: None,
    control: RunControl | None = None,
) -> None:
    """Train every task of ``scenario`` that has no model in ``folder`` yet.

    scenario: the tasks.
    images: the training set that the tasks' indices point into.
    folder: where models, method states and the checkpoint are written. Finished models in it are not changed.
    setup: how models are made and trained.
    after_task: called with every task and its model, in order, also for tasks found finished.
    control: progress events and cancellation.

    Each task reads the previous model and the method's state from the folder, also when they are still in memory, so
    that an uninterrupted run and a resumed one take the same path.
    """
    control = control or RunControl()
    folder.models.mkdir(parents=True, exist_ok=True)
    folder.remove_temporaries()
    checkpoint = CheckpointFile(folder.checkpoint)
    for task in scenario.tasks:
        if not folder.model(task.number).is_dir():
            control.cancel.raise_if_requested()
            inputs = _inputs(scenario, task, images, folder, setup)
            features = train_task(inputs, setup.options, checkpoint=checkpoint, control=control)
            _save(folder, inputs, features)
            checkpoint.clear()
            control.on_event(TaskEnded(task.number, task.num_seen))
        after_task(task, _load(folder, task.number))
    checkpoint.clear()  # a kill between saving the last model and clearing leaves one behind


def _inputs(scenario: Scenario, task: Task, images: Images, folder: RunFolder, setup: ScenarioSetup) -> TaskInputs:
    encoder = _starting_encoder(task, folder, setup)
    method = setup.make_method()
    if task.number > 1:
        previous = scenario.tasks[task.number - 2]
        restore_method(method, previous, encoder.dim, folder.method(previous.number))
    old: nn.Module | None = None
    if task.reference == "loaded":
        assert task.model is not None
        old = setup.load_model(task.model)
    elif task.reference == "previous":
        old = _load(folder, task.number - 1)
    elif setup.options.random_reference and task.number == 1 and method.old_features != "none":
        old = _new_encoder(setup, "random reference")
    past: list[BufferFeatures] = []
    if method.reads_kept and len(task.buffer_indices):
        past = [BufferFeatures(**read_torch(folder.kept_features(number))[0]) for number in range(1, task.number)]
    following = scenario.tasks[task.number :]
    next_buffer = following[0].buffer_indices if following else None
    return TaskInputs(encoder, method, task, images, old, past, next_buffer)


def _starting_encoder(task: Task, folder: RunFolder, setup: ScenarioSetup) -> Encoder:
    if task.start == "previous":
        return _load(folder, task.number - 1)
    if task.start == "loaded":
        assert task.model is not None
        return setup.load_model(task.model)
    return _new_encoder(setup, "encoder")


def _new_encoder(setup: ScenarioSetup, purpose: str) -> Encoder:
    """An encoder of random weights. ``purpose`` is part of the seed."""
    with GENERATOR_LOCK:
        torch.manual_seed(derived_seed(setup.options.seed, 0, purpose))
        return setup.make_encoder()


def _load(folder: RunFolder, number: int) -> Encoder:
    return Encoder.from_pretrained(folder.model(number))


def _save(folder: RunFolder, inputs: TaskInputs, features: BufferFeatures | None) -> None:
    encoder, method, task = inputs.encoder, inputs.method, inputs.task
    encoder.info = {**encoder.info, "task": task.number}
    if method.num_slots is None:  # ``fit`` recorded none; ``update`` reads from the record which classes are known
        encoder.info["slots"] = task.registry.to_json()
    with replacing_folder(folder.model(task.number)) as temporary:
        encoder.write_into(temporary)
        write_torch(temporary / folder.method(task.number).name, method.state_dict())
        if features is not None:
            write_torch(temporary / folder.kept_features(task.number).name, features._asdict())
        space_map = method.space_map()
        if space_map is not None:
            space_map.save(temporary / folder.space_map(task.number).name)
