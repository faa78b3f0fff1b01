"""Defaults of ``start`` for images: network, size, training and its length, by the images and by the network's name.

The recipe of ``small_resnet`` was chosen on 40 classes of CIFAR-100 with 80 training images each; bench/first_model.py
measures it on the other 60.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median_low
from typing import Any

import torch
from PIL import Image

from holdfast.embedders.pixels import Colour
from holdfast.train.data.sampler import steps_per_epoch
from holdfast.train.encoders.named_backbone import NamedBackbone, NetworkInput, named_backbone
from holdfast.train.engine import FitOptions
from holdfast.train.engine.options import Precision
from holdfast.train.versions.samples import find_images

DEFAULT_NETWORK = "small_resnet"
SMALL_SIDE, LARGE_SIDE = 32, 64
"""Least and largest side that images are scaled to for networks that start from random weights, in pixels."""
STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 1200, 15, 300
"""Training takes about ``STEPS`` steps, but not fewer or more epochs than these: minutes on two CPU cores for up to
20,000 images, and in proportion to the images above that."""
FIRST_UPDATE = 0.5
"""The first update of ``DEFAULT_NETWORK`` begins with trained weights and takes this share of the steps of ``start``.
Chosen on validation classes by bench/update_steps.py."""
TRAINED_STEPS = 400
"""Least number of steps for networks with trained weights, within 10 and 50 epochs."""
_SIZES_READ = 100


@dataclass(frozen=True)
class ImageSurvey:
    """What the defaults depend on.

    images: number of image files.
    side: median of their shorter sides, in pixels.
    """

    images: int
    side: int


@dataclass(frozen=True)
class ImageDefaults:
    """Defaults of a first version on images, named as in ``VersionSettings``."""

    backbone: str
    backbone_options: dict[str, Any]
    size: int
    fit: FitOptions
    preprocess: dict[str, Any]
    colour: Colour = "rgb"


def survey_images(source: Path, split_folders: bool | None = None) -> ImageSurvey:
    """Count the images of ``source`` and read the sizes of some, from their headers; none is decoded.

    split_folders: as in ``start``.
    """
    files = find_images(source, split_folders).listing.files
    step = max(1, len(files) // _SIZES_READ)
    sides = [side for side in map(_shorter_side, files[::step]) if side is not None]
    return ImageSurvey(len(files), median_low(sides) if sides else SMALL_SIDE)


def image_defaults(
    survey: ImageSurvey | None, network: str | NamedBackbone | None = None, *, precision: Precision = "fp32"
) -> ImageDefaults:
    """The defaults for a network.

    survey: None if the images are not known yet: those for 2,000 images of 32 pixels.
    network: its name, or what ``named_backbone`` found; default: ``small_resnet``.
    precision: of networks with trained weights.

    ``small_resnet`` is trained from random weights by SGD at a high rate. Other networks keep a lower rate that suits
    most of them. Networks with trained weights are trained as is usual for retrieval: a tenth of the classifier's rate
    for the network, a warm-up, boxes of 16 to 100 % of a photograph, and a centre crop for queries.
    """
    survey = survey or ImageSurvey(2000, SMALL_SIDE)
    size = image_side(survey.side)
    named = named_backbone(network) if isinstance(network, str) else network
    if named is None or named == NamedBackbone(DEFAULT_NETWORK):
        fit = FitOptions(
            epochs=default_epochs(survey.images, batch_size=64),
            batch_size=64,
            lr=0.1,
            weight_decay=5e-3,
            decay_norms=False,
            schedule="cosine",
            crop_padding=size // 16,
        )
        options = {"stem_stride": 2} if size == LARGE_SIDE else {}
        return ImageDefaults(DEFAULT_NETWORK, options, size, fit, {})
    if named.input is not None:
        return _pretrained_defaults(named, named.input, precision, survey.images)
    fit = FitOptions(epochs=30, batch_size=32, optimizer="adamw", lr=1e-3, schedule="cosine", crop_padding=size // 8)
    return ImageDefaults(named.name, named.options, size, fit, {})


def _pretrained_defaults(
    named: NamedBackbone, expected: NetworkInput, precision: Precision, images: int
) -> ImageDefaults:
    fit = pretrained_fit(precision, resized_crop=expected.side)
    epochs = default_epochs(images, batch_size=fit.batch_size, steps=TRAINED_STEPS, fewest=fit.epochs, most=50)
    fit = replace(fit, epochs=epochs)
    preprocess: dict[str, Any] = {"resize": expected.resize}
    if expected.mean is not None and expected.std is not None:
        preprocess |= {"mean": list(expected.mean), "std": list(expected.std)}
    return ImageDefaults(named.name, named.options, expected.resize, fit, preprocess, expected.colour)


def pretrained_fit(precision: Precision = "fp32", *, resized_crop: int = 0) -> FitOptions:
    """Options for training a network that has trained weights.

    resized_crop: side of the crops; 0 leaves the images as they are, for an update that keeps those of the model.
    """
    return FitOptions(
        epochs=10,
        batch_size=32,
        optimizer="adamw",
        lr=1e-3,
        lr_groups={"backbone": 0.1},
        weight_decay=0.01,
        decay_norms=False,
        schedule="cosine",
        warmup=0.1,
        precision=precision,
        crop_padding=0,
        resized_crop=resized_crop,
        crop_scale=(0.16, 1.0),
    )


def mixed_precision(device: torch.device) -> Precision:
    """The precision of networks with trained weights: bf16 where the device computes it fast, else fp32."""
    fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return "bf16" if fast else "fp32"


def image_side(side: int) -> int:
    """The side that images are scaled to for networks without trained weights: that of the images, within 32 and 64.

    side: median of the images' shorter sides. The result is a multiple of 16.
    """
    return min(LARGE_SIDE, max(SMALL_SIDE, side // 16 * 16))


def photograph_advice(survey: ImageSurvey) -> str | None:
    """What ``start`` does with photographs if no network is named, and what is better; None for small images."""
    if survey.side <= LARGE_SIDE:
        return None
    return (
        f"the images have about {survey.side} pixels a side; they are scaled to {LARGE_SIDE}, and a small network is "
        "trained from random weights. A network with trained weights finds far more: --backbone timm:NAME or hf:NAME "
        "downloads one, --backbone FILE reads your own"
    )


def default_epochs(
    images: int,
    *,
    batch_size: int,
    steps: int | None = None,
    fewest: int | None = None,
    most: int | None = None,
) -> int:
    """Epochs that give about ``steps`` steps on ``images`` images, a fifth of which is held out, as by default.

    steps, fewest, most: default ``STEPS``, and the bounds ``FEWEST_EPOCHS`` and ``MOST_EPOCHS``.
    """
    trained = max(1, round(0.8 * images))
    epochs = -(-(steps or STEPS) // steps_per_epoch(trained, 0, batch_size))
    return min(most or MOST_EPOCHS, max(fewest or FEWEST_EPOCHS, epochs))


def _shorter_side(file: Path) -> int | None:
    """None for a file that cannot be opened; ``start`` refuses it later with all others."""
    try:
        with Image.open(file) as image:
            return int(min(image.size))
    except Exception:  # decoders raise anything for a broken file
        return None
