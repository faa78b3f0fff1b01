"""The input of a network: how images or vectors are made ready for it. Saved with every encoder.

The fields and the work up to arrays are plain data (``embedders.model_inputs``); here they become tensors.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import check_real
from holdfast.embedders.model_inputs import (
    VECTORS_KIND,
    ImageLike,
    ImagesInput,
    ImagesLike,
    VectorsInput,
    image_sequence,
)
from holdfast.train.geometry import unit_of_any_length

__all__ = ["VECTORS_KIND", "ImageLike", "ImagesLike", "Input", "Preprocess", "VectorInput", "input_from_json"]


class Input(Protocol):
    """What a network takes and how raw items become its input: ``Preprocess`` or ``VectorInput``."""

    takes_vectors: ClassVar[bool]

    @property
    def channels(self) -> int: ...

    @property
    def height_width(self) -> tuple[int, int]: ...

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input: C x H x W, or D for vectors."""

    def as_sequence(self, items: Any, /) -> Any:
        """One item or many, as a sequence that can be sliced and passed to ``stack`` part by part."""

    def stack(self, items: Any, /) -> Tensor:
        """Items as one tensor on the CPU, in the dtype they are stored in: the argument of ``normalise``."""

    def normalise(self, stacked: Tensor, /) -> Tensor:
        """The network's float32 input, on the same device."""

    def __call__(self, items: Any, /) -> Tensor:
        """``normalise(stack(items))``."""

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Preprocess(ImagesInput):
    """Colour, size and scale of a network's input.

    size: height and width of the input; one number means a square.
    mean, std: one number per channel (1 for ``grey``, 3 for ``rgb``), for pixels scaled to [0, 1].
    colour: "rgb" or "grey".
    resize: length of the shorter side before the centre crop; None scales to the smallest image that covers ``size``.
    interpolation: "bilinear", "bicubic" or "nearest".
    max_pixels: larger images are refused.

    An image that already has the target size is neither scaled nor cropped.

    >>> import numpy as np
    >>> from holdfast import Preprocess
    >>> preprocess = Preprocess(32, mean=(0.5,), std=(0.25,), colour="grey")
    >>> preprocess.height_width, preprocess.channels
    ((32, 32), 1)
    """

    def as_sequence(self, images: ImagesLike) -> Sequence[ImageLike] | np.ndarray:
        """Images as a sequence that can be sliced and passed to ``stack`` part by part."""
        return image_sequence(images)

    def __call__(self, images: ImagesLike) -> Tensor:
        """One image or a sequence of them -> float32, N x C x H x W (N = 1 for one image).

        An array N x H x W x C is a sequence of images.
        """
        return self.normalise(self.stack(images).contiguous())

    def stack(self, images: ImagesLike) -> Tensor:
        """The images, resized and cropped: uint8 N x C x H x W, in channels_last memory format."""
        return torch.from_numpy(self.arrays(images)).permute(0, 3, 1, 2)

    def normalise(self, images: Tensor) -> Tensor:
        """uint8 N x C x H x W -> float32 of the same shape on the same device."""
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != self.channels:
            found = f"{images.dtype} of shape {tuple(images.shape)}"
            raise HoldfastError(f"normalise takes uint8 of shape N x {self.channels} x H x W, found {found}")
        mean, std = _per_channel(self.mean, self.std, images.device)
        return images.float().div_(255).sub_(mean).div_(std)


@functools.lru_cache(maxsize=32)
def _per_channel(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and std as 1 x C x 1 x 1, copied to a device once instead of at every training step."""
    with torch.inference_mode(False):  # a cached inference tensor could not be used in training
        shape = (1, len(mean), 1, 1)
        return (
            torch.tensor(mean, dtype=torch.float32, device=device).view(shape),
            torch.tensor(std, dtype=torch.float32, device=device).view(shape),
        )


@dataclass(frozen=True)
class VectorInput(VectorsInput):
    """Width and scale of a network's input, for embeddings of text, sound or products.

    width: length of a vector.
    unit: scale each vector to norm 1 first; a zero vector stays zero.

    An ``ImageSet`` stores a vector as an image of one pixel with ``width`` channels.

    >>> from holdfast import Encoder, VectorInput, build_backbone
    >>> head = build_backbone("linear", in_channels=8, width=4)
    >>> encoder = Encoder(head, preprocess=VectorInput(8, unit=True))
    >>> encoder.dim
    4
    """

    def __call__(self, vectors: Any) -> Tensor:
        """One vector or a sequence of them -> float32, N x ``width`` (N = 1 for one vector)."""
        return self.normalise(self.stack(vectors))

    def as_sequence(self, vectors: Any) -> Tensor:
        """The same as ``stack``: a tensor can be sliced."""
        return self.stack(vectors)

    def stack(self, vectors: Any) -> Tensor:
        """Float32 N x ``width`` from a tensor, an array or a sequence of either; another width is refused."""
        if isinstance(vectors, Tensor):
            check_real(vectors, "vectors")
            vectors = vectors.detach().float().cpu().numpy()
        return torch.from_numpy(self.arrays(vectors))

    def normalise(self, vectors: Tensor) -> Tensor:
        """Float32 N x ``width``, or N x ``width`` x 1 x 1 as ``Images`` give it -> float32 N x ``width``."""
        flat = vectors.flatten(1)
        if flat.dtype != torch.float32 or flat.shape[1] != self.width:
            found = f"{vectors.dtype} of shape {tuple(vectors.shape)}"
            raise HoldfastError(f"this model takes float32 vectors of {self.width} numbers, found {found}")
        return unit_of_any_length(flat) if self.unit else flat


def input_from_json(value: Any) -> Input:
    """The ``Preprocess`` or ``VectorInput`` that ``to_json`` wrote."""
    if isinstance(value, Mapping) and value.get("kind") == VECTORS_KIND:
        return VectorInput.from_json(value)
    return Preprocess.from_json(value)
