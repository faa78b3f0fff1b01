"""Defaults of ``start`` for images: network, size, training and its length, by the images and by the network's name.

The recipe of ``small_resnet`` was chosen on 40 classes of CIFAR-100 with 80 training images each; bench/first_model.py
measures it on the other 60.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from typing import Any

from PIL import Image

from holdfast.data.sampler import steps_per_epoch
from holdfast.errors import HoldfastError
from holdfast.lifecycle.samples import find_images
from holdfast.storage import read_json
from holdfast.training import FitOptions

DEFAULT_NETWORK = "small_resnet"
SMALL_SIDE, LARGE_SIDE, PRETRAINED_SIDE = 32, 64, 224
"""Sides that images are scaled to, in pixels: small images, larger ones, and those of pre-trained networks."""
STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 1200, 15, 300
"""Training takes about ``STEPS`` steps, but not fewer or more epochs than these: minutes on two CPU cores for up to
20,000 images, and in proportion to the images above that."""
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


def survey_images(source: Path, split_folders: bool | None = None) -> ImageSurvey:
    """Count the images of ``source`` and read the sizes of some, from their headers; none is decoded.

    split_folders: as in ``start``.
    """
    files = find_images(source, split_folders).listing.files
    step = max(1, len(files) // _SIZES_READ)
    sides = [side for side in map(_shorter_side, files[::step]) if side is not None]
    return ImageSurvey(len(files), median_low(sides) if sides else SMALL_SIDE)


def image_defaults(survey: ImageSurvey | None, network: str | None = None) -> ImageDefaults:
    """The defaults for a network.

    survey: None if the images are not known yet: those for 2,000 images of 32 pixels.
    network: its name; default: ``small_resnet``.

    ``small_resnet`` is trained from random weights by SGD at a high rate. Other networks keep a lower rate that suits
    most of them, and ``hf:`` networks, which mostly come with trained weights, a still lower one.
    """
    survey = survey or ImageSurvey(2000, SMALL_SIDE)
    size = LARGE_SIDE if survey.side >= LARGE_SIDE else SMALL_SIDE
    if network is None or network == DEFAULT_NETWORK:
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
    fit = FitOptions(epochs=30, batch_size=32, optimizer="adamw", lr=1e-3, schedule="cosine", crop_padding=size // 8)
    if not network.startswith("hf:"):
        return ImageDefaults(network, {}, size, fit, {})
    size, preprocess = _pretrained_input(Path(network.removeprefix("hf:")))
    fit = FitOptions(epochs=10, batch_size=32, optimizer="adamw", lr=1e-4, schedule="cosine", crop_padding=size // 16)
    return ImageDefaults(network, {}, size, fit, preprocess)


def default_epochs(images: int, *, batch_size: int, held_out_share: float = 0.2) -> int:
    """Epochs that give about ``STEPS`` steps on ``images`` images, some of which are held out."""
    trained = max(1, round(images * (1 - held_out_share)))
    epochs = -(-STEPS // steps_per_epoch(trained, 0, batch_size))
    return min(MOST_EPOCHS, max(FEWEST_EPOCHS, epochs))


def _shorter_side(file: Path) -> int | None:
    """None for a file that cannot be opened; ``start`` refuses it later with all others."""
    try:
        with Image.open(file) as image:
            return int(min(image.size))
    except Exception:  # decoders raise anything for a broken file
        return None


def _pretrained_input(folder: Path) -> tuple[int, dict[str, Any]]:
    """Side of the images, and mean and std, from the files of a transformers model; 224 pixels if they do not say."""
    config, processor = (_json_object(folder / name) for name in ("config.json", "preprocessor_config.json"))
    side = config.get("image_size")
    mean, std = (processor.get(key) for key in ("image_mean", "image_std"))
    preprocess = {"mean": mean, "std": std} if isinstance(mean, list) and isinstance(std, list) else {}
    return side if isinstance(side, int) and side > 0 else PRETRAINED_SIDE, preprocess


def _json_object(file: Path) -> dict[str, Any]:
    try:
        found = read_json(file)
    except HoldfastError:
        return {}
    return found if isinstance(found, dict) else {}
