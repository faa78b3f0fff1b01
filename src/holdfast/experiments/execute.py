"""Run a recipe from images to a report, into a folder that can be killed at any moment and resumed.

Run a recipe from Python as ``holdfast run`` does.

Whose folder is it: a run goes only where nothing is, or where the same recipe was run before.
"""

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from holdfast.data import ImageSet, OpenSet
from holdfast.data.device_images import DeviceImages, StreamedImages
from holdfast.devices import resolve_device
from holdfast.encoders import Encoder, FeatureStore, ModelFeatures, compact_basis, extract, read_space_maps
from holdfast.environment import describe
from holdfast.errors import HoldfastError
from holdfast.evaluation import judge_run, mixed_gallery
from holdfast.evaluation.matrix import matrix_html
from holdfast.experiments.assemble import Experiment, SharedData, assemble
from holdfast.experiments.load import read_recipe
from holdfast.experiments.planned_steps import steps_per_task
from holdfast.experiments.record import Sitting
from holdfast.experiments.schema import Recipe, check_recipe
from holdfast.experiments.sinks import LoggedRun, Sinks, check_sinks, logging_to
from holdfast.reports import write_report
from holdfast.run_folder import FolderRefusedError, RunFolder
from holdfast.scenarios import Task
from holdfast.storage import TEMPORARY, read_json, without_nan, write_json, write_text
from holdfast.training import walk
from holdfast.training.event_log import Journal, read_events
from holdfast.training.executors import refuse_without_gpu
from holdfast.training.options import imitates_bf16
from holdfast.training.ranks import ALONE, Ranks
from holdfast.wording import are, counted

Log = Callable[[dict[str, Any]], None]


def execute(
    recipe: Recipe,
    folder: RunFolder,
    *,
    shared: SharedData | None = None,
    device: str = "auto",
    resume: bool = False,
    sinks: Sequence[str] = (),
    watch: Log = lambda event: None,
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    """Train, evaluate and report ``recipe`` in ``folder``; what ``metrics.json`` says.

    A folder that holds another recipe's run is refused; one that holds this recipe's needs ``resume``.
    ``shared`` holds the data of several runs; ``watch`` sees every event, for a progress bar; ``sinks`` are names of
    what the run is logged to beside its folder.
    Of several ``ranks`` the first does all this; the others only train, and read what it found.
    """
    where = ranks.device or resolve_device(device)
    refuse_without_gpu(recipe["train"]["executor"], where)  # before the folder is claimed, so that it stays free
    check_sinks(sinks)
    if ranks.first:
        claim(recipe.tables, folder, resume=resume, check=lambda raw: check_recipe(raw).tables)
    shared = shared or SharedData()
    experiment = assemble(recipe, shared)
    images = shared.images(experiment.data.train, where, experiment.options.images)
    if not ranks.first:
        return _follow(experiment, folder, images, ranks)
    logged, steps = LoggedRun(folder, recipe.tables), _planned_steps(experiment)
    with folder.held(), logging_to(sinks, logged, steps, warn=lambda text: watch(_warning(text))) as logs:
        folder.error.unlink(missing_ok=True)
        write_text(folder.recipe, recipe.to_toml())
        sitting = Sitting(folder, {**describe(str(where)), "ranks": ranks.world})
        for text in (*_overlap(experiment), *_slow(experiment, where), *sitting.changes()):
            watch(_warning(text))

        def watch_sitting(event: dict[str, Any]) -> None:
            if event["event"] == "begin":
                sitting.note()
            watch(event)

        store = _train(recipe, experiment, folder, images, logs, watch_sitting, ranks)
        sitting.note()  # of a finished run only the evaluation is done anew
        watch({"event": "matrix"})
        models, maps = store.read_all(), read_space_maps(folder, len(experiment.scenario))
        metrics: dict[str, Any] = {
            "method": recipe.method,
            "protocols": judge_run(
                models,
                *store.labels(),
                protocols=[name for name in recipe["evaluation"]["protocols"] if name != "mixed"],
                maps=maps,
                device=where,
            ),
            "maps": [task.number for task in experiment.scenario.tasks if folder.space_map(task.number).exists()],
            "tasks": _task_records(experiment, folder),
            "data": _data_record(experiment.data),
        }
        if "mixed" in recipe["evaluation"]["protocols"]:
            metrics["mixed"] = mixed_gallery(models, *store.labels(), maps=maps, device=where)
        if recipe["evaluation"]["compact"]:
            metrics["data"]["stored"] = _stored_record(models)
        metrics = without_nan(metrics)  # what is returned is what is on disk
        write_json(folder.metrics, metrics)
        write_report([folder.path], folder.report)
        logs.summary(metrics["protocols"])
    ranks.wait()
    watch({"event": "done"})
    return metrics


def _follow(
    experiment: Experiment, folder: RunFolder, images: DeviceImages | StreamedImages, ranks: Ranks
) -> dict[str, Any]:
    """Train along with the first rank and leave the rest to it."""
    walk(
        experiment.scenario,
        images,
        folder,
        make_encoder=experiment.make_encoder,
        make_method=experiment.make_method,
        options=experiment.options,
        load_model=experiment.load_model,
        load_reference=experiment.load_reference,
        ranks=ranks,
    )
    ranks.wait()
    return dict(read_json(folder.metrics))


def _train(
    recipe: Recipe,
    experiment: Experiment,
    folder: RunFolder,
    images: DeviceImages | StreamedImages,
    logs: Sinks,
    watch: Log,
    ranks: Ranks,
) -> FeatureStore:
    """Walk the scenario and keep the features of every model on the way."""
    journal = Journal(folder.log)

    def log(event: dict[str, Any]) -> None:
        for each in (journal, logs, watch):  # watch last: it may end the run
            each(event)

    store = FeatureStore(folder.features)
    store.open_for(experiment.data.query.labels, experiment.data.gallery.labels, experiment.data.fingerprint)

    def keep_features(task: Task, encoder: Encoder) -> None:
        if not store.has(task.number):
            watch({"event": "features", "task": task.number})
            basis = compact_basis(encoder) if recipe["evaluation"]["compact"] else None
            size = recipe["evaluation"]["batch_size"]
            query, gallery = (
                extract(encoder, tested, device=images.device, batch_size=size, basis=basis)
                for tested in (experiment.data.query, experiment.data.gallery)
            )
            store.write(task.number, ModelFeatures(query, gallery, None if basis is None else basis.numpy()))

    watch({"event": "plan", "steps": _planned_steps(experiment)})
    for text in _notes(experiment, images, ranks):
        log({"event": "note", "text": text})
    walk(
        experiment.scenario,
        images,
        folder,
        make_encoder=experiment.make_encoder,
        make_method=experiment.make_method,
        options=experiment.options,
        load_model=experiment.load_model,
        load_reference=experiment.load_reference,
        log=log,
        after_task=keep_features,
        ranks=ranks,
    )
    return store


def _notes(experiment: Experiment, images: DeviceImages | StreamedImages, ranks: Ranks) -> Iterator[str]:
    """What the log should say of how the run is carried out."""
    if isinstance(images, StreamedImages):
        yield f"streaming {len(images):,} images from host memory"
    if ranks.world > 1:
        eager = images.device.type == "cuda" and ranks.executor(experiment.options.executor) == "eager"
        how = "; steps are eager, train.executor=graph captures them" if eager else ""
        yield f"{ranks.world} ranks share each batch of {experiment.options.batch_size}{how}"


def _overlap(experiment: Experiment) -> Iterator[str]:
    """Say that tested classes are trained on: it does not stop a run but changes what its numbers mean."""
    overlap = experiment.data.overlap
    if overlap:
        some = ", ".join(overlap[:3]) + (", ..." if len(overlap) > 3 else "")
        classes = f"{counted(len(overlap), 'tested class')} {are(len(overlap))} trained on ({some})"
        yield f"not an open-set test: {classes}"


def _slow(experiment: Experiment, where: torch.device) -> Iterator[str]:
    """Say why nothing seems to happen: a step that takes seconds in float32 may then take minutes."""
    if experiment.options.precision == "bf16" and imitates_bf16(where):
        yield "this CPU has no bf16 and imitates it, many times slower than float32; train.precision=fp32 is quicker"


def _warning(text: str) -> dict[str, Any]:
    return {"event": "warning", "text": text}


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


def _data_record(data: OpenSet) -> dict[str, Any]:
    def record(images: ImageSet) -> dict[str, Any]:
        return {"classes": images.num_classes, "images": len(images), "fingerprint": images.fingerprint}

    parts = {"train": data.train, "query": data.query, "gallery": data.gallery}
    return {**{name: record(images) for name, images in parts.items()}, "open_set": not data.overlap}


def _stored_record(models: list[ModelFeatures]) -> dict[str, Any]:
    """How many numbers the galleries keep of an item, model by model, and how many times fewer than full features."""
    stored, full = [model.gallery.shape[1] for model in models], [model.full_dim for model in models]
    return {"numbers": stored, "full": full, "times_smaller": round(sum(full) / sum(stored), 3)}


class RunMetrics(dict[str, Any]):
    """What ``metrics.json`` says, as a dict; a notebook shows the matrix under each protocol."""

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


def run_recipe(
    recipe: str | Path,
    out: str | Path,
    settings: Sequence[str] = (),
    *,
    data: str | Path | None = None,
    models: str | Path | None = None,
    device: str = "auto",
    resume: bool = False,
    sinks: Sequence[str] = (),
) -> RunMetrics:
    """Train, evaluate and report a recipe (a TOML file or a built-in name) into the folder ``out``.

    settings: what is changed in it, such as "train.epochs=10". data, models: where data sets and trained models lie.
    resume: go on with the run in the folder. sinks: what to log to beside it (tensorboard, wandb, mlflow).
    """
    checked = check_recipe(read_recipe(str(recipe), settings))
    shared = SharedData(None if data is None else Path(data), None if models is None else Path(models))
    return RunMetrics(execute(checked, RunFolder(out), shared=shared, device=device, resume=resume, sinks=sinks))


def claim(
    tables: Mapping[str, Any],
    folder: RunFolder,
    *,
    resume: bool,
    check: Callable[[dict[str, Any]], Mapping[str, Any]],
) -> None:
    """Refuse a folder with something else in it; one with this recipe's run needs ``resume``. ``check``: raw tables
    of a recipe to checked ones."""
    if not folder.recipe.exists():
        if folder.path.exists() and not folder.path.is_dir():
            raise FolderRefusedError(f"{folder.path}: not a folder; choose another --out")
        # A kill while the very first file was written leaves its temporary and the lock alone in the folder, a failure
        # before it (data that is not there) only what it says.
        if folder.path.exists() and not all(
            entry in (folder.lock, folder.error) or entry.name.startswith(TEMPORARY) for entry in folder.path.iterdir()
        ):
            raise FolderRefusedError(f"{folder.path}: not empty and not a run folder; choose another --out")
        return
    try:
        held = check(read_recipe(str(folder.recipe)))
    except HoldfastError as error:  # a recipe of another kind or that nobody can read: not this one's in any case
        place = f"{folder.recipe}: "
        raise FolderRefusedError(place + str(error).removeprefix(place)) from error
    if held != tables:
        raise FolderRefusedError(f"{folder.path}: holds a run of another recipe; choose another --out")
    if not resume:
        raise FolderRefusedError(f"{folder.path}: holds a run of this recipe; add --resume to go on with it")
