"""Pre-train a model on one set of classes, into its slots or with a trainable classifier; killed, it goes on.

What a recipe for pre-training one model may say.

Several models pre-trained side by side on one device.
"""

import itertools
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field

from holdfast.data import ImageSet
from holdfast.data.sampler import steps_per_epoch
from holdfast.devices import resolve_device
from holdfast.encoders import Encoder
from holdfast.environment import describe
from holdfast.errors import HoldfastError
from holdfast.experiments.assemble import (
    SharedData,
    encoder_maker,
    method_maker,
    preprocess_of,
    trained_size,
    try_encoder,
)
from holdfast.experiments.execute import claim
from holdfast.experiments.load import read_recipe
from holdfast.experiments.models import BroughtIn, head_of
from holdfast.experiments.record import Sitting
from holdfast.experiments.schema import (
    PreprocessSection,
    Recipe,
    Strict,
    backbone_section,
    dataset_section,
    keywords,
    method_section,
    train_section,
    validated,
)
from holdfast.experiments.sweep import INTERRUPTED, different_streams, failure_of
from holdfast.methods import Method
from holdfast.named_code import is_named_code
from holdfast.randomness import GLOBAL_GENERATOR, derived_seed
from holdfast.run_folder import RunFolder
from holdfast.scenarios import SlotRegistry, Task
from holdfast.storage import write_text
from holdfast.training import FitOptions, fit
from holdfast.training.checkpoint import CheckpointFile
from holdfast.training.event_log import Journal, read_events
from holdfast.training.slots import read_slots


class _Top(Strict):
    title: str = ""
    seed: int = Field(0, ge=0)
    namespace: str | None = None
    slots_from: str | None = None
    data: dict[str, Any]
    backbone: dict[str, Any]
    method: dict[str, Any]
    methods: dict[str, dict[str, Any]] = Field(default_factory=dict)
    train: dict[str, Any] = Field(default_factory=dict)
    preprocess: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class PretrainRecipe(Recipe):
    """A checked recipe for one model.

    namespace: put before class names in the slot record; the name of the dataset unless given.
    slots_from: a model whose classes keep their slots; new classes take the lowest free ones. Without it, class after
    class from the left, so that the first 50 classes sit where they sit among the first 100.
    """

    @property
    def folder(self) -> Path:
        """DATASET/BACKBONE-CLASSES-HEAD, or without CLASSES where the reader has no such option."""
        backbone = self["backbone"]["name"].split(":")[-1].strip("/").split("/")[-1]
        classes = f"-{self['data']['classes']}" if self["data"].get("classes") else ""
        head = head_of(method_maker(self, 2)())
        return Path(self["data"]["name"]) / f"{backbone}{classes}-{head}"


def check_pretrain_recipe(raw: Mapping[str, Any]) -> PretrainRecipe:
    """Check a pre-training recipe as read from TOML; as strict as for runs."""
    top = validated(_Top, raw, "")
    for name, options in top.pop("methods").items():
        method_section({"name": name, **options}, f"methods.{name}")
    top["data"] = dataset_section(top["data"], "data")
    top["backbone"] = backbone_section(top["backbone"])
    top["method"] = method_section(top["method"], "method")
    top["train"] = train_section(top["train"], top["data"])
    top["preprocess"] = validated(PreprocessSection, top["preprocess"], "preprocess")
    return PretrainRecipe(top)


Log = Callable[[dict[str, Any]], None]


def pretrain(
    recipe: PretrainRecipe,
    folder: RunFolder,
    *,
    shared: SharedData | None = None,
    device: str = "auto",
    watch: Log = lambda event: None,
) -> dict[str, Any]:
    """Train ``recipe``'s model; afterwards ``Encoder.from_pretrained`` reads ``folder``. Returns the model's record.

    A folder that holds another recipe's model is refused; what this one's left there is gone on with.
    """
    claim(recipe.tables, folder, resume=True, check=lambda raw: _checked_in_folder(raw, recipe))
    where = resolve_device(device)
    shared = shared or SharedData()
    if (folder.path / "config.json").exists():
        watch({"event": "done"})
        return dict(Encoder.from_pretrained(folder.path).info["pretrained"])
    images = shared.one_set(recipe["data"])
    make_method = method_maker(recipe, images.num_classes)
    method = make_method()
    task = _whole_set(recipe, images, method, shared.models)
    options = FitOptions(**keywords(FitOptions, recipe["train"]), seed=recipe.seed)
    preprocess = preprocess_of(recipe["preprocess"], images, size=trained_size(images, options))
    make_encoder = encoder_maker(recipe, preprocess, make_method)
    with GLOBAL_GENERATOR:
        try_encoder(make_encoder(), preprocess, make_method(), options)
        torch.manual_seed(derived_seed(recipe.seed, 0, "encoder"))
        encoder = make_encoder()
    with folder.held():
        write_text(folder.recipe, recipe.to_toml())
        Sitting(folder, describe(str(where))).note()
        journal, checkpoint = Journal(folder.log), CheckpointFile(folder.checkpoint)

        def log(event: dict[str, Any]) -> None:
            journal(event)
            watch(event)

        watch({"event": "plan", "steps": [options.epochs * steps_per_epoch(len(images), 0, options.batch_size)]})
        fit(
            encoder,
            method,
            task,
            shared.images(images, where, options.images),
            options=options,
            log=log,
            checkpoint=checkpoint,
        )
        encoder.info = {**encoder.info, "pretrained": _record(recipe, images, method, folder)}
        encoder.write_into(folder.path)
        checkpoint.clear()
    watch({"event": "done"})
    return dict(encoder.info["pretrained"])


def _checked_in_folder(raw: dict[str, Any], recipe: PretrainRecipe) -> Mapping[str, Any]:
    """The folder's recipe, checked; code is imported on the user's word alone, never because a folder names it."""
    method = raw.get("method")
    named = method.get("name") if isinstance(method, Mapping) else None
    if isinstance(named, str) and is_named_code(named) and named != recipe.method:
        raise HoldfastError(f"holds a model trained with {named}; choose another --out")
    return check_pretrain_recipe(raw).tables


def _whole_set(recipe: PretrainRecipe, images: ImageSet, method: Method, models: Path) -> Task:
    """One task with every class, each on its slot."""
    namespace = recipe["namespace"] if recipe["namespace"] is not None else recipe["data"]["name"]
    names = [f"{namespace}/{name}" if namespace else name for name in images.class_names]
    registry = SlotRegistry(method.num_slots or len(names))
    if recipe["slots_from"] is not None:
        older = BroughtIn(models).load(recipe["slots_from"])
        try:
            registry = registry.meet(read_slots(older, models / recipe["slots_from"]))
        except HoldfastError as error:
            raise HoldfastError(f"slots_from: {error}") from error
    registry = registry.take_left(name for name in names if name not in registry.owners)
    classes = tuple(range(len(names)))
    return Task(
        number=1,
        new_classes=classes,
        seen_classes=classes,
        new_indices=np.arange(len(images)),
        buffer_indices=np.empty(0, dtype=np.int64),
        registry=registry,
        slots=tuple(registry.slot(name) for name in names),
        start="scratch",
        reference="none",
    )


def _record(recipe: PretrainRecipe, images: ImageSet, method: Method, folder: RunFolder) -> dict[str, Any]:
    epochs = [event for event in read_events(folder.log) if event["event"] == "epoch"]
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


Watch = Callable[[str, dict[str, Any]], None]


def plan_models(
    sources: Sequence[str],
    *,
    methods: Sequence[str] = (),
    backbones: Sequence[str] = (),
    classes: Sequence[int] = (),
    settings: Sequence[str] = (),
) -> dict[str, PretrainRecipe]:
    """Every combination, checked, by the folder it goes to; an empty list leaves what the recipe says."""
    planned: dict[str, PretrainRecipe] = {}
    axes: tuple[Sequence[Any], ...] = (sources, methods or [None], backbones or [None], classes or [None])
    for source, method, backbone, count in itertools.product(*axes):
        own = [f"method.name={method}"] if method else []
        own += [f"backbone.name={backbone}"] if backbone else []
        own += [f"data.classes={count}"] if count is not None else []
        recipe = check_pretrain_recipe(read_recipe(source, [*own, *settings]))
        name = recipe.folder.as_posix()
        if name in planned:
            raise HoldfastError(f"{source}: two models would be called {name}; leave one of them out")
        planned[name] = recipe
    return planned


def pretrain_many(
    planned: Mapping[str, PretrainRecipe],
    folder: Path,
    *,
    shared: SharedData,
    device: torch.device,
    parallel: int,
    watch: Watch = lambda name, event: None,
) -> dict[str, dict[str, Any] | HoldfastError]:
    """Train the models into ``folder``, at most ``parallel`` at a time; per model its record, or why it failed.

    On a GPU each thread has a stream of its own, which it keeps from model to model. A model that fails leaves the
    others alone, and its traceback beside its folder.
    """
    stop = threading.Event()
    streams = different_streams(lambda: torch.cuda.Stream(device), parallel) if device.type == "cuda" else []
    own = threading.local()  # with its stream a thread keeps the memory of its graphs

    def begin_thread() -> None:
        own.stream = streams.pop() if streams else None

    def one(name: str) -> dict[str, Any] | HoldfastError:
        def watch_one(event: dict[str, Any]) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            watch(name, event)

        try:
            with torch.cuda.stream(own.stream):  # which does nothing for None
                target = RunFolder(folder / name)
                return pretrain(planned[name], target, shared=shared, device=str(device), watch=watch_one)
        except KeyboardInterrupt:
            return HoldfastError(INTERRUPTED)
        except Exception as error:  # whatever it is, the other models go on
            write_text(folder / f"{name}-error.txt", traceback.format_exc())
            failure = failure_of(error)
            watch(name, {"event": "failed", "text": str(failure)})
            return failure

    with ThreadPoolExecutor(max_workers=len(streams) or parallel, initializer=begin_thread) as pool:
        try:
            return dict(zip(planned, pool.map(one, planned), strict=True))
        except KeyboardInterrupt:
            stop.set()  # each thread ends at its next event, behind its last checkpoint
            pool.shutdown(cancel_futures=True)
            raise
