"""What ``holdfast demo --train`` does: two versions of a model, one index, and four ways to search it with the new.

The setting is fixed by this rule, which was written before the first result was seen:

- Data: drawn characters (reader ``glyphs``) with the reader's defaults, but 40 queries of each character, so that the
  check has 1,600. The first half of the 60 training characters trains version 1, and the others arrive with version 2.
  Index and queries show 40 characters that no model was trained on.
- Training: the defaults of ``holdfast start`` and ``holdfast update`` for the network ``small``, the smallest one, with
  15 epochs, the fewest that ``start`` chooses for a network without trained weights. Seed 0.
- Plain fine-tuning: the same weights to start from, images, replayed images, epochs, batches and rates; cross-entropy
  with a new linear classifier, and nothing that holds the model to version 1.
- Bridges: the defaults of ``Bridge.fit`` on every fourth item of the index, without labels.
- Two models train at the same time with one thread each, so that the numbers do not depend on the number of cores.
- Score: the share of queries with a first hit of the right character, over single items (``top1`` of ``check``).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError
from holdfast.train.events import Watch

if TYPE_CHECKING:
    from holdfast.bridges import Bridge
    from holdfast.train.engine import Cancellation, RunControl

RECORD = "demo.json"
NAMES = ("version 1", "version 2, plain", "version 2, Holdfast")
"""Names of the three trainings, for their progress."""
PLAIN, BRIDGED, TRAINED, TRAINED_BRIDGED = "plain", "plain_bridge", "holdfast", "holdfast_bridge"
"""Names of the checks: version 2 by plain fine-tuning or trained by Holdfast, each without and with a bridge."""


@dataclass(frozen=True)
class DemoSettings:
    """The numbers of the rule above.

    train_classes: characters to train on, half of them for each version.
    test_classes: characters in the index.
    per_class_train, per_class_index, per_class_query: images of each character.
    epochs: of each training.
    pair_every: every so many items of the index are a pair for the bridge.
    seed: of weights, batches and augmentation.
    """

    train_classes: int = 60
    test_classes: int = 40
    per_class_train: int = 100
    per_class_index: int = 20
    per_class_query: int = 40
    epochs: int = 15
    pair_every: int = 4
    seed: int = 0


def run_demo(out: Path, settings: DemoSettings, watch: Watch, cancel: "Cancellation") -> dict[str, Any]:
    """Do everything but the gallery in ``out``, and return the record that is in its demo.json.

    out: a new folder, or one of an earlier demo with the same settings: what is finished there is used again.
    watch: called with the name of a training and each of its events.
    cancel: stops the trainings between two steps.
    """
    from holdfast.core.storage import read_json, remove_temporaries, without_nan, write_json

    path = out / RECORD
    if path.exists():
        record: dict[str, Any] = read_json(path)
        if record.get("settings") != asdict(settings):
            raise HoldfastError(f"{out}: holds a demo with other settings; choose another --out")
        if "scores" in record:
            return record
    elif out.exists() and any(out.iterdir()):
        raise HoldfastError(f"{out}: is not empty and not of a demo; choose another --out")
    write_json(path, {"settings": asdict(settings)})
    remove_temporaries(out)
    _draw_images(out / "images", settings)
    _train(out, settings, watch, cancel)
    record = {"settings": asdict(settings), **_measure(out, settings)}
    write_json(path, without_nan(record))
    return record


def _draw_images(folder: Path, settings: DemoSettings) -> None:
    """Four folders with a folder for each character: first and second (to train on), index and queries."""
    from PIL import Image

    from holdfast.core.storage import replacing_folder
    from holdfast.train.data.readers.glyphs import glyphs

    if folder.exists():
        return
    sizes = {
        "train_classes": settings.train_classes,
        "test_classes": settings.test_classes,
        "per_class_train": settings.per_class_train,
        "per_class_query": settings.per_class_query,
        "per_class_gallery": settings.per_class_index,
    }
    with replacing_folder(folder) as temporary:
        for split in ("train", "gallery", "query"):
            drawn = glyphs(folder, split, **sizes)
            counts: dict[int, int] = {}
            for pixels, label in zip(drawn.images, drawn.labels.tolist(), strict=True):
                if split == "train":
                    part = "first" if label < settings.train_classes // 2 else "second"
                else:
                    part = {"gallery": "index", "query": "queries"}[split]
                number = counts[label] = counts.get(label, -1) + 1
                # Some characters cannot be in the name of a file, so their code stands for them.
                file = temporary / part / drawn.class_names[label].split()[0] / f"{number:03d}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels[..., 0]).save(file)


def _train(out: Path, settings: DemoSettings, watch: Watch, cancel: "Cancellation") -> None:
    """Version 1, then version 2 twice at the same time: by plain fine-tuning and by ``holdfast update``."""
    from holdfast.train.devices import torch_threads
    from holdfast.train.engine import RunControl
    from holdfast.train.versions import start, update

    images, models = out / "images", out / "models"

    def first(control: "RunControl") -> dict[str, Any]:
        changes = [f"train.epochs={settings.epochs}", f"seed={settings.seed}"]
        return start(images / "first", models / "1", backbone="small", changes=changes, **_keywords(control))

    def plain(control: "RunControl") -> dict[str, Any]:
        if not (models / "2-plain").exists():
            _fine_tune(models / "1", images / "second", models / "2-plain", control)
        return {}

    def trained(control: "RunControl") -> dict[str, Any]:
        return update(models / "1", images / "second", models / "2", **_keywords(control))

    def on_one_thread(work: "Callable[[RunControl], dict[str, Any]]", control: "RunControl") -> None:
        with torch_threads(1):  # again, because torch counts the threads of each thread
            work(control)

    with torch_threads(1), ThreadPoolExecutor(2) as pool:
        for stage in ({NAMES[0]: first}, {NAMES[1]: plain, NAMES[2]: trained}):
            submitted = {
                name: pool.submit(on_one_thread, work, RunControl(partial(watch, name), cancel))
                for name, work in stage.items()
            }
            for name, waiting in submitted.items():
                try:
                    waiting.result()
                except HoldfastError as error:
                    raise HoldfastError(f"{name}: {error}") from error
                except KeyboardInterrupt:  # each training saves a checkpoint and ends
                    cancel.cancel()
                    raise


def _keywords(control: "RunControl") -> dict[str, Any]:
    return {"device": "cpu", "on_event": control.on_event, "cancel": control.cancel}


def _fine_tune(model: Path, data: Path, out: Path, control: "RunControl") -> None:
    """Train ``model`` on by cross-entropy alone, with the images, replay and options that ``update`` would use."""
    from holdfast.train.data.sampler import steps_per_epoch
    from holdfast.train.engine import fit
    from holdfast.train.events import Event, RunEnded, TaskEvent, TasksPlanned
    from holdfast.train.methods import METHODS
    from holdfast.train.scenarios import SlotRegistry
    from holdfast.train.versions.next_settings import next_settings
    from holdfast.train.versions.parent import SampleSet
    from holdfast.train.versions.plan import VersionContext, plan_version

    parent, settings, _ = next_settings(model)
    settings = settings.changed(method={"name": "er"})
    reader = settings.training_reader(parent.preprocess)
    context = VersionContext(settings, reader, parent, SlotRegistry(1))
    plan = plan_version(reader.find(data, None).samples, parent.buffer or SampleSet(), context)
    counts = len(plan.task.new_indices), len(plan.task.buffer_indices)
    control.on_event(TasksPlanned([settings.fit.epochs * steps_per_epoch(*counts, settings.fit.batch_size)]))

    def on_event(event: Event) -> None:  # the display counts tasks from 1
        control.on_event(replace(event, task=1) if isinstance(event, TaskEvent) else event)

    encoder, method = parent.encoder, METHODS["er"]()
    fit(encoder, method, plan.task, plan.images, options=settings.fit, on_event=on_event, cancel=control.cancel)
    encoder.info = {"title": "Plain fine-tuning"}
    encoder.eval().save_pretrained(out)
    control.on_event(RunEnded())


def _measure(out: Path, settings: DemoSettings) -> dict[str, Any]:
    """Embed index and queries by the three models, fit the bridges, make the checks, and write all of it."""
    from holdfast.checks import check
    from holdfast.reports import check_report, write_report

    (index, queries), plain, trained = (_embed(out, name) for name in ("1", "2-plain", "2"))
    bridges = {name: _bridge(out, index, new[0], settings) for name, new in ((PLAIN, plain), (TRAINED, trained))}
    found = {
        PLAIN: check(index, queries, plain[1], plain[0]),
        BRIDGED: check(index, queries, plain[1], plain[0], bridge=bridges[PLAIN]),
        TRAINED: check(index, queries, trained[1], trained[0]),
        TRAINED_BRIDGED: check(index, queries, trained[1], trained[0], bridge=bridges[TRAINED]),
    }
    records = {name: result.as_json() for name, result in found.items()}
    (out / "checks").mkdir(exist_ok=True)
    for name, record in records.items():
        write_report(check_report(record), out / "checks" / f"{name}.html")
    return {
        "queries": records[PLAIN]["queries"],
        "items": records[PLAIN]["gallery"],
        "pairs": bridges[PLAIN].evidence.pairs,
        "bridges": {name: bridge.kind for name, bridge in bridges.items()},
        "scores": {
            "version_1": records[PLAIN]["self_test"],
            **{name: record["cross_test"] for name, record in records.items()},
            "reembedded": records[PLAIN]["new_self_test"],
            "holdfast_reembedded": records[TRAINED]["new_self_test"],
        },
        "checks": {
            name: {
                "at_most_1_point_lost": record["loss"]["answer"],
                "better_than_keeping": record["better"]["answer"],
                "kept": record["kept"],
            }
            for name, record in records.items()
        },
    }


def _embed(out: Path, model: str) -> tuple[Path, Path]:
    """Files of the model's vectors of the index and of the queries."""
    from holdfast.embedders.embed_in_memory import embed
    from holdfast.vectors import write_features

    files = (out / "features" / f"index-{model}.npz", out / "features" / f"queries-{model}.npz")
    for file, images in zip(files, ("index", "queries"), strict=True):
        file.parent.mkdir(exist_ok=True)
        write_features(file, embed(out / "models" / model, out / "images" / images).features)
    return files


def _bridge(out: Path, index: Path, new_index: Path, settings: DemoSettings) -> "Bridge":
    """A bridge to version 1, fitted on a sample of the index; sample and bridge are written."""
    import numpy as np

    from holdfast.bridges import Bridge, read_pairs
    from holdfast.vectors import feature_set, write_features
    from holdfast.vectors.feature_files import read_features

    features = read_features(new_index, "gallery")
    rows = np.arange(0, len(features), settings.pair_every)
    sample = feature_set(str(new_index), features.rows.take(rows), ids=features.names()[rows])
    name = new_index.stem.removeprefix("index-")
    file = out / "features" / f"sample-{name}.npz"
    write_features(file, replace(sample, model=features.model))
    pairs = read_pairs(index, file)
    bridge = Bridge.fit(new=pairs.new, old=pairs.old, items=pairs.found + pairs.only_old, models=pairs.models)
    bridge.save(out / "bridges" / name)
    return bridge
