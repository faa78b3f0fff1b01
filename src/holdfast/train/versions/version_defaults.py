"""The settings of a first version if none are given: method, network, size and training, by the data and the network.

The recipe of ``small_resnet`` was chosen on 40 classes of CIFAR-100 with 80 training images each; bench/first_model.py
measures it on the other 60.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from holdfast.train.data.sampler import steps_per_epoch
from holdfast.train.encoders.named_backbone import NamedBackbone, NetworkInput, named_backbone
from holdfast.train.engine import FitOptions
from holdfast.train.engine.fit_options import Precision
from holdfast.train.versions.samples import SampleRef, median_side
from holdfast.train.versions.settings import VersionSettings

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
OTHER_FIT = {"epochs": 30, "batch_size": 32, "optimizer": "adamw", "lr": 1e-3, "schedule": "cosine"}
"""For other networks with random weights: few epochs and a learning rate that suits most of them."""
VECTOR_HEAD = "residual"
HEAD_FIT = FitOptions(
    epochs=30, batch_size=128, lr=0.05, weight_decay=0.0, schedule="cosine", crop_padding=0, flip=False
)
"""For a head that begins as the identity: a rate so low that it keeps what the vectors tell of other classes.

Chosen on validation classes of CUB-200-2011 (``bench/vector_head.py``).
"""


@dataclass(frozen=True)
class ImageSurvey:
    """What the defaults depend on.

    images: number of image files.
    side: median of their shorter sides, in pixels.
    """

    images: int
    side: int


def survey_images(samples: Sequence[SampleRef]) -> ImageSurvey:
    """Count the images and read the sizes of some from their headers; none is decoded."""
    return ImageSurvey(len(samples), median_side([one.path for one in samples]) or SMALL_SIDE)


def default_settings(
    *,
    vectors: bool,
    images: ImageSurvey | None = None,
    network: str | NamedBackbone | None = None,
    precision: Precision = "fp32",
) -> VersionSettings:
    """The settings of a first version if none are given.

    The method is d-Simplex-HOC on a network that starts from random weights, distillation on one with trained weights,
    and Cosine-HOC on vectors. A simplex would project the features of a trained network, and training on few classes
    then loses what they tell of others (``bench/pretrained_method.py``).

    vectors: whether the samples are vectors.
    images: number and size of the images; None if they are not known yet: 2,000 images of 32 pixels.
    network: name of another network, or what ``named_backbone`` found; the training options suit it.
    precision: of networks for images with trained weights (``mixed_precision``).

    ``small_resnet`` is trained from random weights by SGD at a high rate. Other networks keep a lower rate that suits
    most of them. Networks with trained weights are trained as is usual for retrieval: a tenth of the classifier's rate
    for the network, a warm-up, boxes of 16 to 100 % of a photograph, and a centre crop for queries.

    >>> from holdfast.train.versions.version_defaults import default_settings
    >>> settings = default_settings(vectors=True)
    >>> settings.method["name"], settings.network
    ('cosine_hoc', 'residual')
    """
    network = named_backbone(network) if isinstance(network, str) else network
    tables: dict[str, Any] = {"method": {"name": "simplex_hoc", "lambda": 0.3}}
    if vectors:
        tables["title"] = "Own vectors"
        if network is None or network.name == VECTOR_HEAD:
            tables |= {"method": {"name": "cosine_hoc"}, "backbone": {"name": VECTOR_HEAD}}
            tables |= {"train": HEAD_FIT.table(), "preprocess": {"unit": True}}
        else:
            tables |= {"backbone": network.table, "train": OTHER_FIT}
        return VersionSettings(**tables, vectors=True)
    survey = images or ImageSurvey(2000, SMALL_SIDE)
    if network is not None and network.input is not None:
        tables["method"] = {"name": "distillation", "softmax": "cosine"}
        tables |= _pretrained_tables(network, network.input, precision, survey.images)
    else:
        tables |= _scratch_tables(network, survey)
    return VersionSettings(**{"title": "Own images", **tables}, vectors=False)


def _scratch_tables(network: NamedBackbone | None, survey: ImageSurvey) -> dict[str, Any]:
    size = image_side(survey.side)
    data = {"size": size, "colour": "rgb"}
    if network is not None and network != NamedBackbone(DEFAULT_NETWORK):
        return {"backbone": network.table, "data": data, "train": {**OTHER_FIT, "crop_padding": size // 8}}
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
    return {"backbone": {"name": DEFAULT_NETWORK, **options}, "data": data, "train": fit.table()}


def _pretrained_tables(
    named: NamedBackbone, expected: NetworkInput, precision: Precision, images: int
) -> dict[str, Any]:
    fit = pretrained_fit(precision, resized_crop=expected.side)
    epochs = default_epochs(images, batch_size=fit.batch_size, steps=TRAINED_STEPS, fewest=fit.epochs, most=50)
    preprocess: dict[str, Any] = {"resize": expected.resize}
    if expected.mean is not None and expected.std is not None:
        preprocess |= {"mean": list(expected.mean), "std": list(expected.std)}
    return {
        "backbone": named.table,
        "data": {"size": expected.resize, "colour": expected.colour},
        "train": {**fit.table(), "epochs": epochs},
        "preprocess": preprocess,
    }


def completed(settings: VersionSettings) -> VersionSettings:
    """``settings`` of a first version with a network, size and colour if they name none."""
    if settings.network is None:
        name = VECTOR_HEAD if settings.vectors else DEFAULT_NETWORK
        settings = settings.changed(backbone={"name": name, **(settings.backbone or {})})
    if not settings.vectors:
        data = settings.data
        settings = settings.changed(data={"size": data.size or SMALL_SIDE, "colour": data.colour or "rgb"})
    return settings


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
