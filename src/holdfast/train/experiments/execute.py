"""Run a recipe: train and evaluate it in a run folder. A run can be killed at any moment and resumed."""

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from holdfast.checks import PROTOCOLS
from holdfast.core.environment import describe
from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import FolderRefusedError, RunFolder
from holdfast.core.storage import TEMPORARY, check_file_writable, read_json, without_nan, write_json, write_text
from holdfast.core.wording import are, counted
from holdfast.embedders.model_folder import CONFIG_FILE
from holdfast.train.data import ImageSet, OpenSet
from holdfast.train.data.device_images import Images
from holdfast.train.data.sampler import steps_per_epoch
from holdfast.train.devices import resolve_device
from holdfast.train.encoders import Encoder, FeatureStore, ModelFeatures, compact_basis, extract, read_space_maps
from holdfast.train.encoders.backbones import is_own_code
from holdfast.train.engine import RunControl, train_scenario
from holdfast.train.engine.build import naming_table
from holdfast.train.engine.executors import refuse_without_gpu
from holdfast.train.engine.fit_options import emulates_bf16
from holdfast.train.evaluation import FURTHER_EVALUATIONS, evaluate_run
from holdfast.train.evaluation.finished_run import keep_extras
from holdfast.train.evaluation.matrix import matrix_html
from holdfast.train.events import (
    EvaluationBegan,
    Event,
    EventLog,
    FeaturesBegan,
    Note,
    OnEvent,
    RunEnded,
    RunWarning,
    TaskBegan,
    TasksPlanned,
    ignore_event,
    read_events,
)
from holdfast.train.experiments.assemble import Experiment, SharedData, assemble
from holdfast.train.experiments.load import read_recipe
from holdfast.train.experiments.schema import Recipe, check_recipe
from holdfast.train.run_session import RunSession
from holdfast.train.scenarios import Scenario, Task


def run_recipe(
    recipe: str | Path,
    out: str | Path,
    settings: Sequence[str] = (),
    *,
    data: str | Path | None = None,
    models: str | Path | None = None,
    device: str = "auto",
    resume: bool = False,
    on_event: OnEvent = ignore_event,
) -> "RunMetrics":
    """Train and evaluate a recipe in the folder ``out``, as ``holdfast run`` does.

    recipe: a TOML file, or the name of a built-in recipe.
    out: the run folder.
    settings: changes to the recipe, such as "train.epochs=10".
    data: the folder of datasets; default: $HOLDFAST_DATA, else ``./data``.
    models: the folder of pre-trained models; default: $HOLDFAST_MODELS, else ``./models``.
    device: auto, cpu, cuda or cuda:N.
    resume: continue the run in the folder; without it a folder with a run is refused.
    on_event: called with each event of the run (``holdfast.train.events``); by default the folder's log has them.

    >>> from holdfast import run_recipe
    >>> small = ["scenario.initial=2", "scenario.tasks=2", "backbone.width=4", "train.epochs=1"]
    >>> small += ["data.train.train_classes=4", "data.train.per_class_train=4", "data.train.test_classes=2"]
    >>> for split in ("query", "gallery"):
    ...     small += [f"data.{split}.test_classes=2", f"data.{split}.per_class_{split}=4"]
    >>> metrics = run_recipe("demo", "runs/small", small, device="cpu")
    >>> sorted(metrics["protocols"])
    ['instance', 'template']
    """
    checked = check_recipe(read_recipe(str(recipe), settings))
    shared = SharedData(None if data is None else Path(data), None if models is None else Path(models))
    control = RunControl(on_event)
    return RunMetrics(execute(checked, RunFolder(out), shared=shared, device=device, resume=resume, control=control))


class RunMetrics(dict[str, Any]):
    """The content of ``metrics.json`` as a dict; a notebook shows the matrix under each protocol."""

    def __repr__(self) -> str:
        scores = "; ".join(
            f"{protocol} AC {_shown(found['AC'])} AA {_shown(found['AA'])} ACA {_shown(found['ACA'])}"
            for protocol, found in self["protocols"].items()
        )
        return f"<{self['method']}, {counted(len(self['tasks']), 'model')}: {scores}>"

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{html.escape(str(self['method']))}</b>, {counted(len(self['tasks']), 'model')}</p>"]
        for protocol, scores in self["protocols"].items():
            parts.append(f"<p>{html.escape(protocol)}</p>{matrix_html(scores['matrix'])}")
        return "".join(parts)


def _shown(score: float | None) -> str:
    return "–" if score is None else f"{score:.3f}"


def execute(
    recipe: Recipe,
    folder: RunFolder,
    *,
    shared: SharedData | None = None,
    device: str = "auto",
    resume: bool = False,
    control: RunControl | None = None,
) -> dict[str, Any]:
    """Train and evaluate a checked recipe; returns the content of ``metrics.json``.

    folder: where the run is written. A folder with a run of another recipe is refused.
    shared: the data, if several runs share it.
    device: auto, cpu, cuda or cuda:N.
    resume: continue a run of this recipe in the folder; without it such a folder is refused.
    control: receives the progress events and stops the run.
    """
    control = control or RunControl()
    on_event, where = control.on_event, resolve_device(device)
    with naming_table("train"):  # first, so that nothing is written if it is refused
        refuse_without_gpu(recipe["train"]["executor"], where)
    for name in _further(recipe):
        if name not in FURTHER_EVALUATIONS:
            raise HoldfastError(f"evaluation.protocols: {name} is measured by papers/, in a clone; leave it out")
    claim = partial(claim_folder, recipe.tables, folder, resume=resume, check=lambda raw: check_recipe(raw).tables)
    claim()
    shared = shared or SharedData()
    experiment = assemble(recipe, shared)
    images = shared.images(experiment.data.train, where, experiment.options.images)
    with folder.locked(then=claim):
        folder.error.unlink(missing_ok=True)
        write_text(folder.recipe, recipe.to_toml())
        session = RunSession(folder, describe(str(where)))
        for text in (*_closed_set_warning(experiment), *_bf16_warning(experiment, where), *session.changes()):
            on_event(RunWarning(text))

        known = read_json(folder.metrics) if folder.metrics.exists() else None  # of an earlier evaluation

        def record_session(event: Event) -> None:
            nonlocal known
            if isinstance(event, TaskBegan):
                session.record()
                known = None
            on_event(event)

        store = _train(recipe, experiment, folder, images, replace(control, on_event=record_session))
        session.record()  # if all tasks were trained before, only the evaluation is repeated
        control.cancel.raise_if_requested()
        on_event(EvaluationBegan())
        models, maps = store.read_all(), read_space_maps(folder, len(experiment.scenario))
        metrics: dict[str, Any] = {
            "method": recipe.method,
            "protocols": evaluate_run(
                models,
                *store.labels(),
                protocols=[name for name in recipe["evaluation"]["protocols"] if name in PROTOCOLS],
                maps=maps,
                device=where,
            ),
            "maps": [task.number for task in experiment.scenario.tasks if folder.space_map(task.number).exists()],
            "tasks": _task_records(experiment, folder),
            "data": _data_record(experiment.data),
        }
        if loaded := _loaded_models(experiment, folder):
            metrics["models"] = loaded
        for name in _further(recipe):
            metrics[name] = FURTHER_EVALUATIONS[name](models, *store.labels(), maps=maps, device=where)
        if recipe["evaluation"]["compact"]:
            metrics["data"]["stored"] = _stored_record(models)
        if isinstance(known, dict):  # nothing was trained: what ``evaluate`` added is still right
            keep_extras(metrics["protocols"], known.get("protocols", {}))
            metrics = {**{key: known[key] for key in ("mixed", "bridged") if key in known}, **metrics}
        metrics = without_nan(metrics)  # so that the returned metrics equal those on disk
        write_json(folder.metrics, metrics)
    on_event(RunEnded())
    return metrics


def _further(recipe: Recipe) -> list[str]:
    """What is to be evaluated besides protocols."""
    return [name for name in recipe["evaluation"]["protocols"] if name not in PROTOCOLS]


def claim_folder(
    tables: Mapping[str, Any],
    folder: RunFolder,
    *,
    resume: bool,
    check: Callable[[dict[str, Any]], Mapping[str, Any]],
) -> None:
    """Refuse a folder that this run may not be written to.

    A missing or empty folder is accepted. One with a run of an equal recipe is accepted if ``resume``.

    tables: the tables of the recipe to run.
    check: checks the tables of the recipe in the folder and fills in defaults.
    """
    if not folder.recipe.exists():
        if folder.path.exists() and not folder.path.is_dir():
            raise FolderRefusedError(f"{folder.path}: not a folder; choose another folder")
        # A run killed while it wrote its first file leaves a temporary file and the lock. One that failed earlier, for
        # example because data is missing, leaves error.txt.
        if folder.path.exists() and not all(
            entry in (folder.lock, folder.error) or entry.name.startswith(TEMPORARY) for entry in folder.path.iterdir()
        ):
            raise FolderRefusedError(f"{folder.path}: not empty and not a run folder; choose another folder")
        try:
            check_file_writable(folder.recipe)
        except HoldfastError as error:
            raise FolderRefusedError(str(error)) from error
        return
    try:
        raw = read_recipe(str(folder.recipe))
        _refuse_other_code(raw, tables)
        held = check(raw)
    except HoldfastError as error:  # a recipe of another kind, or not readable
        place = f"{folder.recipe}: "
        raise FolderRefusedError(place + str(error).removeprefix(place)) from error
    if held != tables:
        raise FolderRefusedError(f"{folder.path}: holds a run of another recipe; choose another folder")
    if not resume:
        raise FolderRefusedError(f"{folder.path}: holds a run of this recipe; pass resume=True to continue it")


def _refuse_other_code(raw: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
    """Refuse a recipe in a folder that names other code than the recipe to run: checking it would import the code."""

    def names(recipe: Mapping[str, Any]) -> set[str]:
        sections = [recipe.get(key) for key in ("method", "backbone")]
        named = [section.get("name") for section in sections if isinstance(section, Mapping)]
        methods = recipe.get("methods")
        named += methods if isinstance(methods, Mapping) else []
        return {name for name in named if isinstance(name, str) and is_own_code(name)}

    for name in sorted(names(raw) - names(tables)):
        raise HoldfastError(f"names the code {name}, which the recipe to run does not; choose another folder")


def _train(
    recipe: Recipe,
    experiment: Experiment,
    folder: RunFolder,
    images: Images,
    control: RunControl,
) -> FeatureStore:
    """Train the scenario and store the features of every model."""
    event_log = EventLog(folder.log)

    def on_event(event: Event) -> None:
        for receiver in (event_log, control.on_event):
            receiver(event)

    store = FeatureStore(folder.features)
    store.open_for(experiment.data.query.labels, experiment.data.gallery.labels, experiment.data.fingerprint)

    def store_features(task: Task, encoder: Encoder) -> None:
        if not store.has(task.number):
            control.cancel.raise_if_requested()
            control.on_event(FeaturesBegan(task.number))
            basis = compact_basis(encoder) if recipe["evaluation"]["compact"] else None
            size = recipe["evaluation"]["batch_size"]
            query, gallery = (
                extract(encoder, tested, device=images.device, batch_size=size, basis=basis)
                for tested in (experiment.data.query, experiment.data.gallery)
            )
            store.write(task.number, ModelFeatures(query, gallery, None if basis is None else basis.numpy()))

    control.on_event(TasksPlanned(_planned_steps(experiment)))
    for text in _notes(images):
        on_event(Note(text))
    train_scenario(
        experiment.scenario,
        images,
        folder,
        experiment,
        after_task=store_features,
        control=replace(control, on_event=on_event),
    )
    return store


def _notes(images: Images) -> Iterator[str]:
    """Notes for the log about how the run is executed."""
    if images.streamed:
        yield f"streaming {len(images):,} images from host memory"


def _closed_set_warning(experiment: Experiment) -> Iterator[str]:
    """A warning if classes of the test set are trained on."""
    overlap = experiment.data.overlap
    if overlap:
        some = ", ".join(overlap[:3]) + (", ..." if len(overlap) > 3 else "")
        classes = f"{counted(len(overlap), 'tested class')} {are(len(overlap))} trained on ({some})"
        yield f"not an open-set test: {classes}"


def _bf16_warning(experiment: Experiment, where: torch.device) -> Iterator[str]:
    """A warning if the CPU emulates bf16: a step of seconds in float32 may then take minutes."""
    if experiment.options.precision == "bf16" and emulates_bf16(where):
        yield "this CPU emulates bf16, many times slower than float32; train.precision=fp32 is faster"


def steps_per_task(scenario: Scenario, *, epochs: int, batch_size: int) -> list[int]:
    """Optimiser steps of each task."""
    return [
        epochs * steps_per_epoch(len(task.new_indices), len(task.buffer_indices), batch_size) for task in scenario.tasks
    ]


def _planned_steps(experiment: Experiment) -> list[int]:
    options = experiment.options
    return steps_per_task(experiment.scenario, epochs=options.epochs, batch_size=options.batch_size)


def _task_records(experiment: Experiment, folder: RunFolder) -> list[dict[str, Any]]:
    steps: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for event in read_events(folder.log):
        if event["event"] == "epoch":
            steps[event["task"]] = event["step"]
            seconds[event["task"]] = seconds.get(event["task"], 0.0) + event["seconds"]
    return [
        {
            "task": task.number,
            **({"model": task.model} if task.model else {}),
            "new_classes": task.num_new,
            "seen_classes": task.num_seen,
            "steps": steps.get(task.number),
            "seconds": round(seconds.get(task.number, 0.0), 2),
        }
        for task in experiment.scenario.tasks
    ]


def _loaded_models(experiment: Experiment, folder: RunFolder) -> dict[str, dict[str, Any]]:
    """Of each pre-trained model that a task started from: the checksum of its weights, and how it was pre-trained."""
    found = {}
    for task in experiment.scenario.tasks:
        if task.start == "loaded" and task.model is not None:
            info = read_json(folder.model(task.number) / CONFIG_FILE)["info"]
            found[task.model] = {"weights_sha256": info["origin"]["weights_sha256"], **info.get("pretrained", {})}
    return found


def _data_record(data: OpenSet) -> dict[str, Any]:
    def record(images: ImageSet) -> dict[str, Any]:
        return {"classes": images.num_classes, "images": len(images), "fingerprint": images.fingerprint}

    parts = {"train": data.train, "query": data.query, "gallery": data.gallery}
    return {**{name: record(images) for name, images in parts.items()}, "open_set": not data.overlap}


def _stored_record(models: list[ModelFeatures]) -> dict[str, Any]:
    """Numbers stored per gallery item by each model, of full features, and the ratio of the two."""
    stored, full = [model.gallery.shape[1] for model in models], [model.full_dim for model in models]
    return {"numbers": stored, "full": full, "times_smaller": round(sum(full) / sum(stored), 3)}
