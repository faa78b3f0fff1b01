"""Build the data, scenario, encoder and method of a run from a checked recipe."""

import inspect
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.data import DATASETS, ImageSet, OpenSet, data_root, load_split, open_set
from holdfast.train.data.decode import DecodeProgress, report_decoding
from holdfast.train.data.device_images import Images, Placement, place_images
from holdfast.train.encoders import Encoder
from holdfast.train.engine import FitOptions, ScenarioSetup
from holdfast.train.engine.build import encoder_maker, fit_options, keywords, preprocess_of, try_encoder
from holdfast.train.experiments.models import PretrainedModels, models_root, named_models, with_head
from holdfast.train.experiments.schema import SPLITS, Recipe
from holdfast.train.methods import Method, method_class
from holdfast.train.randomness import GENERATOR_LOCK
from holdfast.train.scenarios import Scenario, build_scenario


@dataclass(frozen=True, kw_only=True)
class Experiment(ScenarioSetup):
    """Everything that a run needs, built and checked. It does not refer to the recipe.

    data: training images, queries and gallery.
    scenario: the tasks.
    """

    data: OpenSet
    scenario: Scenario


def assemble(recipe: Recipe, shared: "SharedData | None" = None) -> Experiment:
    """Read the data, build the tasks and try every part once, so that errors come before training starts."""
    shared = shared or SharedData()
    data = shared.open_set(recipe)
    make_method = method_maker(recipe, data.train.num_classes)
    options = fit_options(recipe["train"], seed=recipe.seed)
    if "model" in recipe["scenario"]:
        return _assemble_from_models(recipe, data, make_method, options, shared.models)
    scenario = build_scenario(
        recipe["scenario"]["name"],
        data.train.labels,
        data.train.class_names,
        num_slots=make_method().num_slots,
        seed=recipe.seed,
        **_without_name(recipe["scenario"]),
    )
    preprocess = preprocess_of(recipe["preprocess"], data.train, size=data.query.images.shape[1:3])
    build = encoder_maker(recipe["backbone"], preprocess, make_method)
    with GENERATOR_LOCK:
        try_encoder(build(), preprocess, make_method(), options)

    def make_encoder() -> Encoder:
        encoder = build()
        encoder.readout = recipe["evaluation"]["readout"]
        train = data.train
        encoder.info["training_set"] = {
            "images": len(train), "classes": train.num_classes, "fingerprint": train.fingerprint
        }  # fmt: skip
        return encoder

    return Experiment(make_encoder, make_method, options, data=data, scenario=scenario)


def _assemble_from_models(
    recipe: Recipe, data: OpenSet, make_method: Callable[[], Method], options: FitOptions, root: Path
) -> Experiment:
    """``assemble`` for a scenario that names pre-trained models; each of them is loaded and tried."""
    method = make_method()
    section = with_head(recipe["scenario"], method)
    own = PretrainedModels(root).load(section["model"]).preprocess
    preprocess = preprocess_of(recipe["preprocess"], data.train, size=data.query.images.shape[1:3], fallback=own)
    pretrained = PretrainedModels(root, preprocess, recipe["evaluation"]["readout"])
    cards = {name: pretrained.card(name, method) for name in named_models(section)}
    settings = {key: value for key, value in _without_name(section).items() if value is not None}
    scenario = build_scenario(
        section["name"],
        data.train.labels,
        data.train.class_names,
        models=cards,
        num_slots=method.num_slots,
        seed=recipe.seed,
        **{"namespace": recipe["data"]["train"]["name"], **settings},
    )
    with GENERATOR_LOCK:
        for name in cards:
            try_encoder(pretrained.load(name), preprocess, make_method(), options)
    return Experiment(
        lambda: pretrained.load(section["model"]),
        make_method,
        options,
        load_model=pretrained.load,
        data=data,
        scenario=scenario,
    )


class SharedData:
    """Data that several runs share: each set is read once, and copied at most once to each device.

    root: the folder of datasets.
    models: the folder of pre-trained models.
    decoding: called with the progress of decoding.
    """

    def __init__(
        self, root: Path | None = None, models: Path | None = None, *, decoding: DecodeProgress | None = None
    ) -> None:
        self.root = root
        self._decoding = decoding
        self.models = models_root(models)
        self._lock = threading.Lock()
        self._sets: dict[str, OpenSet] = {}
        self._refused: dict[str, str] = {}
        self._single: dict[str, ImageSet] = {}
        self._placed: dict[tuple[str, str, str], Images] = {}

    def open_set(self, recipe: Recipe) -> OpenSet:
        """The three sets of a recipe."""
        crop = recipe["train"]["resized_crop"]
        key = json.dumps([recipe["data"], crop], sort_keys=True)
        with self._lock:
            if key in self._refused:  # not read again: a broken file may be found only after minutes
                raise HoldfastError(self._refused[key])
            if key not in self._sets:
                try:
                    self._sets[key] = self._read_all(recipe["data"], crop)
                except HoldfastError as error:
                    self._refused[key] = str(error)
                    raise
            return self._sets[key]

    def _read_all(self, sections: dict[str, Any], crop: int) -> OpenSet:
        for split in SPLITS:  # so that a missing file is reported before minutes of decoding
            _check_files(sections[split], self.root)
        with report_decoding(self._decoding):
            return open_set(*(_read(sections[split], self.root) for split in SPLITS), train_crop=crop)

    def one_set(self, section: dict[str, Any]) -> ImageSet:
        """The set of one section of a recipe."""
        key = json.dumps(section, sort_keys=True)
        with self._lock:
            if key not in self._single:
                with report_decoding(self._decoding):
                    self._single[key] = _read(section, self.root)
            return self._single[key]

    def images(self, train: ImageSet, device: torch.device, placement: Placement = "auto") -> Images:
        """The training images, placed for ``device``."""
        with self._lock:
            key = (train.fingerprint, str(device), placement)
            if key not in self._placed:
                self._placed[key] = place_images(train, device, placement)
                if device.type == "cuda":
                    # Other runs read it from other streams. A run may be capturing, so the device is not synchronised.
                    torch.cuda.current_stream(device).synchronize()
            return self._placed[key]


def _check_files(section: dict[str, Any], root: Path | None) -> None:
    """Refuse a dataset with missing files, without decoding any."""
    list_files = DATASETS[section["name"]].list_files
    if list_files is not None:
        list_files(data_root(root), section["split"], section["path"], section["incomplete"])


def _read(section: dict[str, Any], root: Path | None) -> ImageSet:
    own = ("name", "split", "per_class")
    options = {key: value for key, value in section.items() if key not in own}
    return load_split(
        section["name"],
        section["split"],
        root,
        section["per_class"],
        **keywords(DATASETS[section["name"]].read, options),
    )


def method_maker(recipe: Recipe, num_classes: int) -> Callable[[], Method]:
    """A function that makes the recipe's method. ``num_classes`` is the default of its ``slots``."""
    build = method_class(recipe.method)
    arguments = keywords(build, _without_name(recipe["method"]))
    known = set(inspect.signature(build).parameters)
    if "slots" in known:
        arguments.setdefault("slots", num_classes)
    return lambda: build(**arguments)


def _without_name(section: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key != "name"}
