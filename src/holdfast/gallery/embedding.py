"""Images of several callers embedded together by the newest version, as a server does it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from holdfast.backbones import Encoder, Preprocess
from holdfast.errors import HoldfastError
from holdfast.gallery.forward_pass import batch_sizes
from holdfast.gallery.spaces import unit_row
from holdfast.gallery.versions import Version
from holdfast.pixels import open_image

if TYPE_CHECKING:
    from holdfast.gallery.attached import AttachedGallery
    from holdfast.gallery.attached_models import AttachedModels
    from holdfast.gallery.gallery import Gallery
    from holdfast.gallery.models import Models


@dataclass(frozen=True)
class OpenedImage:
    """One image, preprocessed for the version that is to embed it, 1 x C x H x W."""

    version: Version
    encoder: Encoder
    pixels: Tensor


class ImageEmbedder:
    """The two halves of embedding an image: opening, which any thread may do, and one forward pass for many."""

    def __init__(self, gallery: "Gallery | AttachedGallery") -> None:
        self._models: Models | AttachedModels = gallery._models

    @property
    def at_once(self) -> int:
        """How many images it is best to collect for one call of ``embed``."""
        return batch_sizes(self._models.device).queries

    def takes_images(self) -> bool:
        """Load the newest model where it is not yet; whether images can be given to it."""
        return isinstance(self._models.encoder(self._models.newest()).preprocess, Preprocess)

    def open(self, image: bytes, *, max_pixels: int) -> OpenedImage:
        """Decode the bytes of an image file; refused where its header says more than ``max_pixels``."""
        version = self._models.newest()
        encoder = self._models.encoder(version)
        if not isinstance(encoder.preprocess, Preprocess):
            raise HoldfastError(f"version {version.number} takes no images; search it by vector")
        limit = min(max_pixels, encoder.preprocess.max_pixels)
        decoded = open_image(image, colour=encoder.preprocess.colour, max_pixels=limit)
        return OpenedImage(version, encoder, encoder.preprocess(decoded))

    def embed(self, images: Sequence[OpenedImage]) -> list[np.ndarray | HoldfastError]:
        """For each image its vector, 1-D, as its version stores it (attached: its full feature), or why it has none."""
        found: list[np.ndarray | HoldfastError] = [HoldfastError("not embedded")] * len(images)
        for number in {image.version.number for image in images}:  # two only while a version is being registered
            places = [place for place, image in enumerate(images) if image.version.number == number]
            first = images[places[0]]
            pixels = torch.cat([images[place].pixels for place in places])
            rows = self._models.image_vectors(pixels, first.version, first.encoder)
            for place, row in zip(places, rows, strict=True):
                try:
                    found[place] = unit_row(row, "image", number)
                except HoldfastError as error:
                    found[place] = error
        return found
