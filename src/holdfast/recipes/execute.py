"""Run a recipe from images to a report, into a folder that can be killed at any moment and resumed."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from holdfast.backbones import Encoder
from holdfast.data import ImageSet, OpenSet
from holdfast.data.device import DeviceImages
from holdfast.data.stream import StreamedImages
from holdfast.devices import resolve_device
from holdfast.engine import walk
from holdfast.engine.bf16_support import imitates_bf16
from holdfast.engine.executors import refuse_without_gpu
from holdfast.engine.journal import Journal, read_events
from holdfast.engine.ranks import ALONE, Ranks
from holdfast.environment import describe
from holdfast.evaluation import judge_run, mixed_gallery
from holdfast.features import FeatureStore, ModelFeatures, compact_basis, extract, read_space_maps
from holdfast.recipes.assemble import Experiment, SharedData, assemble
from holdfast.recipes.claim import claim
from holdfast.recipes.planned_steps import steps_per_task
from holdfast.recipes.schema import Recipe, check_recipe
from holdfast.recipes.sittings import Sitting
from holdfast.reports import write_report
from holdfast.run_folder import RunFolder
from holdfast.scenarios import Task
from holdfast.sinks import LoggedRun, Sinks, check_sinks, logging_to
from holdfast.storage import read_json, without_nan, write_json, write_text
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
