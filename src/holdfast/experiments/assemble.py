"""From a checked recipe to the objects that run it: the door where recipes stop.

The adopted model that a recipe's first task is held to: found, checked, and its vectors looked up.
"""

import inspect
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from holdfast.data import DATASETS, ImageSet, OpenSet, load_split, open_set
from holdfast.data.dataset_files import refuse_miscounted
from holdfast.data.decode import Told, telling
from holdfast.data.device_images import DeviceImages, Placement, StreamedImages, place
from holdfast.data.images import image_names
from holdfast.encoders import Encoder, Preprocess, VectorInput, backbone_builder, build_backbone, load_weights
from holdfast.errors import HoldfastError
from holdfast.experiments.models import BroughtIn, models_root, named_models, with_head
from holdfast.experiments.schema import GIVEN_BACKBONE, SPLITS, Recipe, keywords
from holdfast.lifecycle import Adopted, read_adopted
from holdfast.methods import Method, method_class
from holdfast.pixels import Colour
from holdfast.randomness import GLOBAL_GENERATOR
from holdfast.scenarios import SCENARIOS, ModelCard, Scenario, SlotRegistry, Task
from holdfast.scenarios.iam_cl2r import held_to_adopted
from holdfast.training import FitOptions
from holdfast.training.schedule import parameter_groups


@dataclass(frozen=True)
class HeldTo:
    """model: the adopted one. name: as the recipe calls it. features: where its vectors lie now, if they were moved."""

    model: Adopted
    name: str
    features: str | None

    @classmethod
    def named(cls, section: dict[str, Any], root: Path) -> "HeldTo":
        """From a recipe's table ``adopted``; folders are relative to where models are."""
        folder = root / Path(section["folder"]).expanduser()
        return cls(read_adopted(folder), section["folder"], section["features"])

    def method_options(self, known: set[str]) -> dict[str, int]:
        """What the adopted model decides of a method with the options ``known``: the simplex, or the space's size."""
        registry = self.model.registry
        wanted = {"dim": self.model.dim} if registry is None else {"slots": registry.num_slots}
        return {name: value for name, value in wanted.items() if name in known}

    def scenario(self, scenario: Scenario, train: ImageSet) -> Scenario:
        card = ModelCard(self.model.dim, self.model.registry)
        return held_to_adopted(scenario, train.class_names, card, self.name)

    def refuse_unfit(self, method: Method, encoder: Encoder) -> None:
        """A method that does not train into the adopted space is refused now."""
        registry = self.model.registry
        slots = None if registry is None else registry.num_slots
        if method.num_slots != slots:
            here = "has no simplex" if slots is None else f"is a simplex of {slots} slots"
            needs = "means_hoc" if slots is None else f"a simplex method with {slots} slots"
            raise HoldfastError(f"adopted.folder: the adopted space {here}; train with {needs}")
        if encoder.dim != self.model.dim:
            raise HoldfastError(
                f"adopted.folder: the adopted space has {self.model.dim} numbers, the model in training {encoder.dim}; "
                f"set method.dim to {self.model.dim}"
            )
        if method.old_features == "none":
            raise HoldfastError("method.name: this method reads no old features, so nothing would hold it to the store")

    def loader(self, train: ImageSet) -> Callable[[str], nn.Module]:
        """Reads the stored vectors of the training images when the first task asks for its reference."""
        return lambda name: self.model.reference(image_names(train), features=self.features)


@dataclass(frozen=True)
class Experiment:
    """Everything a run needs, built and checked: nothing in here knows that there was a recipe."""

    data: OpenSet
    scenario: Scenario
    make_encoder: Callable[[], Encoder]
    make_method: Callable[[], Method]
    options: FitOptions
    load_model: Callable[[str], Encoder] = Encoder.from_pretrained
    load_reference: Callable[[str], nn.Module] | None = None


class SharedData:
    """Data that several runs read: each set once in memory and at most once on each device, whoever asks first."""

    def __init__(self, root: Path | None = None, models: Path | None = None, *, decoding: Told | None = None) -> None:
        self.root = root
        self._decoding = decoding
        self.models = models_root(models)
        self._lock = threading.Lock()
        self._sets: dict[str, OpenSet] = {}
        self._refused: dict[str, str] = {}
        self._single: dict[str, ImageSet] = {}
        self._placed: dict[tuple[str, str, str], DeviceImages | StreamedImages] = {}

    def open_set(self, recipe: Recipe) -> OpenSet:
        crop = recipe["train"]["resized_crop"]
        key = json.dumps([recipe["data"], crop], sort_keys=True)
        with self._lock:
            if key in self._refused:  # a broken file among many shows up late, and every run would come to it again
                raise HoldfastError(self._refused[key])
            if key not in self._sets:
                try:
                    self._sets[key] = self._read_all(recipe["data"], crop)
                except HoldfastError as error:
                    self._refused[key] = str(error)
                    raise
            return self._sets[key]

    def _read_all(self, sections: dict[str, Any], crop: int) -> OpenSet:
        for split in SPLITS:  # before one is decoded for minutes: who lacks a file of another should hear it at once
            refuse_miscounted(sections[split], self.root)
        with telling(self._decoding):
            return open_set(*(_read(sections[split], self.root) for split in SPLITS), train_crop=crop)

    def one_set(self, section: dict[str, Any]) -> ImageSet:
        """The set that one section of a recipe names."""
        key = json.dumps(section, sort_keys=True)
        with self._lock:
            if key not in self._single:
                with telling(self._decoding):
                    self._single[key] = _read(section, self.root)
            return self._single[key]

    def images(
        self, train: ImageSet, device: torch.device, placement: Placement = "auto"
    ) -> DeviceImages | StreamedImages:
        with self._lock:
            key = (train.fingerprint, str(device), placement)
            if key not in self._placed:
                self._placed[key] = place(train, device, placement)
                if device.type == "cuda":
                    # Other runs read it from other streams. Not the whole device: one of them may be capturing a step.
                    torch.cuda.current_stream(device).synchronize()
            return self._placed[key]


def assemble(recipe: Recipe, shared: SharedData | None = None) -> Experiment:
    """Read the data, lay out the tasks and try every part once, so that what cannot work is refused now."""
    shared = shared or SharedData()
    data = shared.open_set(recipe)
    held = HeldTo.named(recipe["adopted"], shared.models) if "adopted" in recipe.tables else None
    make_method = method_maker(recipe, data.train.num_classes, held)
    options = FitOptions(**keywords(FitOptions, recipe["train"]), seed=recipe.seed)
    if "model" in recipe["scenario"]:
        if held is not None:
            raise HoldfastError("adopted: models that a scenario brings in are references already; leave the table out")
        return _assemble_from_models(recipe, data, make_method, options, shared.models)
    scenario = SCENARIOS[recipe["scenario"]["name"]](
        data.train.labels,
        data.train.class_names,
        num_slots=make_method().num_slots,
        seed=recipe.seed,
        **_without_name(recipe["scenario"]),
    )
    preprocess = preprocess_of(recipe["preprocess"], data.train, size=data.query.images.shape[1:3])
    build = encoder_maker(recipe, preprocess, make_method)
    with GLOBAL_GENERATOR:
        try_encoder(build(), preprocess, make_method(), options)
        if held is not None:
            held.refuse_unfit(make_method(), build())

    def make_encoder() -> Encoder:
        encoder = build()
        train = data.train
        encoder.info["training_set"] = {
            "images": len(train), "classes": train.num_classes, "fingerprint": train.fingerprint
        }  # fmt: skip
        return encoder

    if held is None:
        return Experiment(data, scenario, make_encoder, make_method, options)
    scenario, loader = held.scenario(scenario, data.train), held.loader(data.train)
    return Experiment(data, scenario, make_encoder, make_method, options, load_reference=loader)


def _assemble_from_models(
    recipe: Recipe, data: OpenSet, make_method: Callable[[], Method], options: FitOptions, root: Path
) -> Experiment:
    """The same where networks are not built but brought in: every model the recipe names is loaded and tried."""
    method = make_method()
    section = with_head(recipe["scenario"], method)
    own = BroughtIn(root).load(section["model"]).preprocess
    preprocess = preprocess_of(recipe["preprocess"], data.train, size=data.query.images.shape[1:3], fallback=own)
    brought_in = BroughtIn(root, preprocess)
    cards = {name: brought_in.card(name, method) for name in named_models(section)}
    settings = {key: value for key, value in _without_name(section).items() if value is not None}
    scenario = SCENARIOS[section["name"]](
        data.train.labels,
        data.train.class_names,
        models=cards,
        num_slots=method.num_slots,
        seed=recipe.seed,
        **{"namespace": recipe["data"]["train"]["name"], **settings},
    )
    with GLOBAL_GENERATOR:
        for name in cards:
            try_encoder(brought_in.load(name), preprocess, make_method(), options)
    return Experiment(data, scenario, lambda: brought_in.load(section["model"]), make_method, options, brought_in.load)


def _read(section: dict[str, Any], data_root: Path | None) -> ImageSet:
    own = ("name", "split", "per_class")
    options = {key: value for key, value in section.items() if key not in own}
    return load_split(
        section["name"],
        section["split"],
        data_root,
        section["per_class"],
        **keywords(DATASETS[section["name"]], options),
    )


def method_maker(recipe: Recipe, num_classes: int, held: HeldTo | None = None) -> Callable[[], Method]:
    build = method_class(recipe.method)
    arguments = keywords(build, _without_name(recipe["method"]))
    known = set(inspect.signature(build).parameters)
    for name, value in (held.method_options(known) if held else {}).items():
        arguments[name] = value if arguments.get(name) is None else arguments[name]
    if "slots" in known:
        arguments.setdefault("slots", num_classes)
    return lambda: build(**arguments)


def encoder_maker(
    recipe: Recipe, preprocess: Preprocess | VectorInput, make_method: Callable[[], Method]
) -> Callable[[], Encoder]:
    name = recipe["backbone"]["name"]
    builder = backbone_builder(name)
    section = _without_name(recipe["backbone"])
    given = {key: section.pop(key) for key in GIVEN_BACKBONE if key in section}
    arguments = section
    if builder is not None:
        arguments = keywords(builder, arguments)
        if "in_channels" in inspect.signature(builder).parameters:
            arguments["in_channels"] = arguments.get("in_channels", preprocess.channels)
            if arguments["in_channels"] != preprocess.channels:
                what = "vectors" if isinstance(preprocess, VectorInput) else "images"
                raise HoldfastError(
                    f"backbone.in_channels is {arguments['in_channels']}, but the {what} have {preprocess.channels}"
                )

    def make_encoder() -> Encoder:
        backbone = build_backbone(name, **arguments)
        dim = make_method().feature_dim(int(backbone.feature_dim))  # type: ignore[arg-type]
        return _with_given(Encoder(backbone, dim, preprocess=preprocess), given)

    return make_encoder


def _with_given(encoder: Encoder, given: dict[str, Any]) -> Encoder:
    """The encoder with the weights that the recipe names, and what it freezes."""
    if "weights" in given:
        prefix, skip = given.get("weights_prefix", ""), given.get("weights_skip", ())
        encoder.info["backbone_weights"] = load_weights(encoder.backbone, given["weights"], prefix=prefix, skip=skip)
    if given.get("freeze"):
        encoder.freeze(given["freeze"])
    return encoder


@torch.no_grad()
def try_encoder(encoder: Encoder, preprocess: Preprocess | VectorInput, method: Method, options: FitOptions) -> None:
    """One black image, or zero vector, through the network, and what ``method``, a fresh one, and options ask of it."""
    if isinstance(preprocess, VectorInput) and method.reads_view:
        raise HoldfastError(
            "the method reads a second view of each image, and vectors have only one; "
            "set its view weights to 0 or choose another method"
        )
    height, width = preprocess.height_width
    what = f"vectors of {preprocess.channels}"
    what = what if isinstance(preprocess, VectorInput) else f"images of {height} x {width}"
    try:
        encoder.eval()(torch.zeros(1, *preprocess.input_shape))
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise HoldfastError(f"the backbone takes no {what}: {reason}") from error
    _begin_once(method, encoder.dim)
    parameter_groups(encoder, method, options)


def _begin_once(method: Method, dim: int) -> None:
    """Begin a first task of two classes: what some methods train is not there before."""
    classes, none = (0, 1), np.arange(0)
    registry = SlotRegistry(2).take_left(["0", "1"])
    with torch.random.fork_rng(devices=[]):
        method.begin(Task(1, classes, classes, none, none, registry, classes, "scratch", "none"), dim)


def trained_size(images: ImageSet, options: FitOptions) -> tuple[int, ...]:
    """Height and width of what training cuts out of its images."""
    size, crop = images.images.shape[1:3], options.resized_crop
    if crop > min(size):
        raise HoldfastError(f"train.resized_crop: images of {size[0]} x {size[1]} are smaller than {crop}; crop less")
    return (crop, crop) if crop else size


def preprocess_of(
    section: dict[str, Any],
    train: ImageSet,
    *,
    size: tuple[int, ...],
    fallback: Preprocess | VectorInput | None = None,
) -> Preprocess | VectorInput:
    """Images are used at ``size``, height and width; mean and std are those of the training pixels unless given.

    fallback: where mean and std, or a vector's ``unit``, come from before the data or the default is asked.
    """
    for key in ("mean", "std", "resize") if train.holds_vectors else ("unit",):
        if section[key] is not None:
            kinds = "images, and these are vectors" if train.holds_vectors else "vectors, and these are images"
            raise HoldfastError(f"preprocess.{key} is for {kinds}; leave it out")
    pixels = train.images
    if train.holds_vectors:
        own = isinstance(fallback, VectorInput) and fallback.unit
        return VectorInput(pixels.shape[-1], unit=own if section["unit"] is None else section["unit"])
    (height, width), channels = size, pixels.shape[3]
    mean, std = section["mean"], section["std"]
    if isinstance(fallback, Preprocess) and fallback.channels == channels:
        mean, std = mean or list(fallback.mean), std or list(fallback.std)
    if mean is None or std is None:
        enough = min(10_000, max(100, 10_000 * 32**2 // (pixels.shape[1] * pixels.shape[2])))
        sample = pixels[:: max(1, len(pixels) // enough)].reshape(-1, channels) / np.float32(255)
        mean = mean or [round(float(value), 4) for value in sample.mean(0, dtype=np.float64)]
        std = std or [max(round(float(value), 4), 1e-4) for value in sample.std(0, dtype=np.float64)]
    colour: Colour = "grey" if channels == 1 else "rgb"
    return Preprocess(size=(height, width), mean=tuple(mean), std=tuple(std), colour=colour, resize=section["resize"])


def _without_name(section: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key != "name"}
