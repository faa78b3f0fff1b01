"""Build methods, encoders and their preprocessing from names and plain options, and try them once before training."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from holdfast.core.errors import HoldfastError, first_line, unknown_name
from holdfast.embedders.pixels import Colour
from holdfast.train.data import ImageSet
from holdfast.train.encoders import (
    Encoder,
    Input,
    Preprocess,
    VectorInput,
    backbone_builder,
    build_backbone,
    load_weights,
)
from holdfast.train.engine.fit_options import FitOptions
from holdfast.train.engine.schedule import lr_factors, parameter_groups
from holdfast.train.methods import Method, method_class
from holdfast.train.scenarios import SlotRegistry, next_task

BACKBONE_EXTRAS = ("weights", "weights_prefix", "weights_skip", "freeze")
"""Options of every backbone, besides those of its own builder."""

FILLED_IN = frozenset({"slots", "in_channels", "namespace"})
"""Options that may be left out although the callable has no default: they are set from the data."""


def fit_options(table: Mapping[str, Any], *, seed: int) -> FitOptions:
    """``FitOptions`` from a recipe's table "train"; errors name its keys (train.lr)."""
    given = keywords(FitOptions, table)
    with naming_table("train"):
        return FitOptions(**given, seed=seed)


@contextmanager
def naming_table(table: str) -> Iterator[None]:
    """Put the name of a recipe's table before errors that begin with the name of an option."""
    try:
        yield
    except HoldfastError as error:
        raise HoldfastError(f"{table}.{error}") from error


def build_method(name: str, options: Mapping[str, Any]) -> Method:
    """A new method without state.

    name: in ``holdfast.train.methods``, or the user's own "module:Class".
    options: by name; a trailing underscore (``lambda_``) may be left out.
    """
    build = method_class(name)
    return build(**keywords(build, options))


def encoder_maker(
    backbone: Mapping[str, Any], preprocess: Input, make_method: Callable[[], Method]
) -> Callable[[], Encoder]:
    """A function that builds a new encoder.

    backbone: ``name``, the options of its builder and ``BACKBONE_EXTRAS``.
    preprocess: of the encoder; it gives the number of input channels.
    make_method: gives a method, which decides the size of the features.
    """
    arguments = dict(backbone)
    name = arguments.pop("name")
    builder = backbone_builder(name)
    given = {key: arguments.pop(key) for key in BACKBONE_EXTRAS if key in arguments}
    if builder is not None:
        arguments = keywords(builder, arguments)
        if "in_channels" in inspect.signature(builder).parameters:
            arguments["in_channels"] = arguments.get("in_channels", preprocess.channels)
            if arguments["in_channels"] != preprocess.channels:
                what = "vectors" if preprocess.takes_vectors else "images"
                raise HoldfastError(
                    f"backbone.in_channels is {arguments['in_channels']}, but the {what} have {preprocess.channels}"
                )

    def make_encoder() -> Encoder:
        backbone = build_backbone(name, **arguments)
        return _with_given(Encoder.for_method(make_method(), backbone=backbone, preprocess=preprocess), given)

    return make_encoder


def _with_given(encoder: Encoder, given: dict[str, Any]) -> Encoder:
    """Load the backbone's weights and freeze parameters, as ``given`` says."""
    if "weights" in given:
        prefix, skip = given.get("weights_prefix", ""), given.get("weights_skip", ())
        encoder.info["backbone_weights"] = load_weights(encoder.backbone, given["weights"], prefix=prefix, skip=skip)
    if given.get("freeze"):
        encoder.freeze(given["freeze"])
    return encoder


@torch.no_grad()
def try_encoder(encoder: Encoder, preprocess: Input, method: Method, options: FitOptions) -> None:
    """Refuse an encoder that cannot be trained: encode one black image or zero vector and begin a task with ``method``.

    method: a new one, which is used up.
    """
    if preprocess.takes_vectors and method.reads_view:
        raise HoldfastError(
            "the method reads a second view of each image, and vectors have only one; "
            "set its view weights to 0 or choose another method"
        )
    height, width = preprocess.height_width
    what = f"vectors of {preprocess.channels}"
    what = what if preprocess.takes_vectors else f"images of {height} x {width}"
    try:
        encoder.eval()(torch.zeros(1, *preprocess.input_shape))
    except (RuntimeError, ValueError) as error:
        raise HoldfastError(f"the backbone takes no {what}: {first_line(error)}") from error
    _begin_once(method, encoder.dim)
    with naming_table("train"):
        lr_factors(encoder, options.lr_groups or {})
    parameter_groups(encoder, method, options)


def _begin_once(method: Method, dim: int) -> None:
    """Begin a first task of two classes, so that the method has all its parameters."""
    names, none = ("0", "1"), np.arange(0)
    task = next_task(1, names, 0, SlotRegistry(2).take_left(names), new_indices=none, buffer_indices=none)
    with torch.random.fork_rng(devices=[]):
        method.begin(task, dim)


def trained_size(images: ImageSet, options: FitOptions) -> tuple[int, ...]:
    """Height and width of the crops that training uses."""
    size, crop = images.images.shape[1:3], options.resized_crop
    if crop > min(size):
        raise HoldfastError(f"train.resized_crop: images of {size[0]} x {size[1]} are smaller than {crop}; crop less")
    return (crop, crop) if crop else size


def preprocess_of(
    section: dict[str, Any],
    train: ImageSet,
    *,
    size: tuple[int, ...],
    fallback: Input | None = None,
) -> Input:
    """The preprocessing of a new encoder.

    section: ``mean``, ``std``, ``resize`` for images and ``unit`` for vectors; None if not set.
    train: the training set; mean and std of its pixels are used if they are not set.
    size: height and width of the images.
    fallback: preprocessing to take mean and std, or ``unit``, from if they are not set.
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


def keywords(callee: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as keyword arguments of ``callee``: ``lambda`` becomes ``lambda_``; unset ``FILLED_IN`` are left out."""
    names = {name.rstrip("_"): name for name in inspect.signature(callee).parameters}
    given = {key.rstrip("_"): value for key, value in options.items()}
    for key in given:
        if key not in names:
            raise unknown_name(f"option of {getattr(callee, '__name__', callee)}", key, names)
    return {names[key]: value for key, value in given.items() if not (key in FILLED_IN and value is None)}
