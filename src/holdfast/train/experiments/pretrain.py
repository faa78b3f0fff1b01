"""Pre-train models on one set of classes, each class on its slot or with a trainable classifier.

Training can be killed at any moment and resumed. Several models can train at the same time on one device.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.core.environment import describe
from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.core.storage import write_text
from holdfast.embedders.model_folder import CONFIG_FILE
from holdfast.train.data import ImageSet
from holdfast.train.data.sampler import steps_per_epoch
from holdfast.train.devices import resolve_device
from holdfast.train.encoders import Encoder
from holdfast.train.engine import RunControl, fit
from holdfast.train.engine.build import encoder_maker, fit_options, preprocess_of, trained_size, try_encoder
from holdfast.train.engine.checkpoint import CheckpointFile
from holdfast.train.engine.model_slots import read_slots
from holdfast.train.events import EpochEnded, Event, EventLog, RunEnded, TasksPlanned, read_events
from holdfast.train.experiments.assemble import SharedData, method_maker
from holdfast.train.experiments.execute import claim_folder
from holdfast.train.experiments.models import PretrainedModels, head_of
from holdfast.train.experiments.schema import (
    Recipe,
    TrainingTables,
    backbone_section,
    dataset_section,
)
from holdfast.train.methods import Method
from holdfast.train.randomness import GENERATOR_LOCK, derived_seed
from holdfast.train.run_session import RunSession
from holdfast.train.scenarios import SlotRegistry, Task, next_task


class PretrainTables(TrainingTables):
    """The top level of a recipe for ``holdfast pretrain``.

    namespace: put before class names in the slot record; default: the name of the dataset.
    slots_from: a model with classes that keep their slots; new classes take the lowest free ones. Without it, slots
    are taken in class order, so that the first 50 classes have the same slots in a model of 100 classes.
    """

    namespace: str | None = None
    slots_from: str | None = None
    data: dict[str, Any]
    backbone: dict[str, Any]


@dataclass(frozen=True)
class PretrainRecipe(Recipe):
    """A checked recipe for pre-training one model."""

    @property
    def folder(self) -> Path:
        """DATASET/BACKBONE-CLASSES-HEAD; without CLASSES if the dataset has no such option."""
        backbone = self["backbone"]["name"].split(":")[-1].strip("/").split("/")[-1]
        classes = f"-{self['data']['classes']}" if self["data"].get("classes") else ""
        head = head_of(method_maker(self, 2)())
        return Path(self["data"]["name"]) / f"{backbone}{classes}-{head}"


def check_pretrain_recipe(raw: Mapping[str, Any]) -> PretrainRecipe:
    """Check the tables of a recipe for ``holdfast pretrain`` and fill in defaults."""
    if "scenario" in raw:
        raise HoldfastError("a recipe of several tasks, which holdfast run trains; leave out the table scenario")
    tables = PretrainTables(**raw)
    data = dataset_section(tables.data, "data")
    top = tables.checked(vectors=data["name"] == "vectors")
    return PretrainRecipe({**top, "data": data, "backbone": backbone_section(tables.backbone)})


def pretrain(
    recipe: PretrainRecipe,
    folder: RunFolder,
    *,
    shared: SharedData | None = None,
    device: str = "auto",
    control: RunControl | None = None,
) -> dict[str, Any]:
    """Train one model, or resume its training; returns its record.

    folder: where the model is written, readable with ``Encoder.from_pretrained``. A folder with a model of another
    recipe is refused.
    shared: the data, if several models share it.
    device: auto, cpu, cuda or cuda:N.
    control: receives the progress events and stops the training.
    """
    tables = recipe.tables
    claim = partial(claim_folder, tables, folder, resume=True, check=lambda raw: check_pretrain_recipe(raw).tables)
    claim()
    where = resolve_device(device)
    shared, control = shared or SharedData(), control or RunControl()
    if (folder.path / CONFIG_FILE).exists():
        return _finished(folder, control)
    images = shared.one_set(recipe["data"])
    make_method = method_maker(recipe, images.num_classes)
    method = make_method()
    task = _single_task(recipe, images, method, shared.models)
    options = fit_options(recipe["train"], seed=recipe.seed)
    preprocess = preprocess_of(recipe["preprocess"], images, size=trained_size(images, options))
    make_encoder = encoder_maker(recipe["backbone"], preprocess, make_method)
    with GENERATOR_LOCK:
        try_encoder(make_encoder(), preprocess, make_method(), options)
        torch.manual_seed(derived_seed(recipe.seed, 0, "encoder"))
        encoder = make_encoder()
    with folder.locked(then=claim):
        if (folder.path / CONFIG_FILE).exists():  # by another process, meanwhile
            return _finished(folder, control)
        folder.remove_temporaries()
        write_text(folder.recipe, recipe.to_toml())
        RunSession(folder, describe(str(where))).record()
        event_log, checkpoint = EventLog(folder.log), CheckpointFile(folder.checkpoint)

        def on_event(event: Event) -> None:
            event_log(event)
            control.on_event(event)

        control.on_event(TasksPlanned([options.epochs * steps_per_epoch(len(images), 0, options.batch_size)]))
        fit(
            encoder,
            method,
            task,
            shared.images(images, where, options.images),
            options=options,
            on_event=on_event,
            cancel=control.cancel,
            checkpoint=checkpoint,
        )
        encoder.info = {**encoder.info, "pretrained": _record(recipe, images, method, folder)}
        encoder.write_into(folder.path)
        checkpoint.clear()
    control.on_event(RunEnded())
    return dict(encoder.info["pretrained"])


def _finished(folder: RunFolder, control: RunControl) -> dict[str, Any]:
    """The record of a model that is complete."""
    if folder.checkpoint.exists():  # left by a kill after the model was written
        CheckpointFile(folder.checkpoint).clear()
    control.on_event(RunEnded())
    return dict(Encoder.from_pretrained(folder.path).info["pretrained"])


def _single_task(recipe: PretrainRecipe, images: ImageSet, method: Method, models: Path) -> Task:
    """One task with every class."""
    namespace = recipe["namespace"] if recipe["namespace"] is not None else recipe["data"]["name"]
    names = [f"{namespace}/{name}" if namespace else name for name in images.class_names]
    registry = SlotRegistry(method.num_slots or len(names))
    if recipe["slots_from"] is not None:
        older = PretrainedModels(models).load(recipe["slots_from"])
        try:
            registry = registry.merge(read_slots(older, models / recipe["slots_from"]))
        except HoldfastError as error:
            raise HoldfastError(f"slots_from: {error}") from error
    registry = registry.take_left(name for name in names if name not in registry.owners)
    return next_task(
        1, names, 0, registry, new_indices=np.arange(len(images)), buffer_indices=np.empty(0, dtype=np.int64)
    )


def _record(recipe: PretrainRecipe, images: ImageSet, method: Method, folder: RunFolder) -> dict[str, Any]:
    epochs = [event for event in read_events(folder.log) if event["event"] == EpochEnded.kind]
    return {
        "head": head_of(method),
        "data": recipe["data"]["name"],
        "classes": images.num_classes,
        "images": len(images),
        "fingerprint": images.fingerprint,
        "epochs": recipe["train"]["epochs"],
        "steps": epochs[-1]["step"],
        "seconds": round(sum(event["seconds"] for event in epochs), 2),
        "loss": epochs[-1]["loss"],
    }
