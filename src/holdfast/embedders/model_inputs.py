"""The input of a model: how images or vectors are made ready for it, up to the arrays that its network takes.

Plain data and NumPy. It is saved with every model; ``holdfast.train`` adds what needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, cast

import numpy as np

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.real_arrays import check_real
from holdfast.core.untrusted_files import whole_number
from holdfast.embedders.pixels import (
    MAX_PIXELS,
    MODES,
    RESAMPLING,
    Colour,
    Interpolation,
    from_array,
    is_picture,
    open_image,
    resize_and_crop,
)

if TYPE_CHECKING:
    from PIL import Image

    ImageLike: TypeAlias = str | Path | bytes | Image.Image | np.ndarray
    """A path, the bytes of an image file, a PIL image, or a uint8 array H x W or H x W x C."""
    ImagesLike: TypeAlias = ImageLike | Sequence[ImageLike]
else:  # where Pillow is not installed
    ImageLike = ImagesLike = Any

MOST_SIDE, MOST_INPUT_PIXELS, MOST_PIXELS = 8192, 2**24, 2**30
"""Bounds of a network's input (a side, all pixels), and of the pixels of an image that it may be made from."""
MOST_WIDTH = 2**20
"""Numbers of a vector that is a network's input."""

VECTORS_KIND = "vectors"
"""The value of ``kind`` in the JSON of a ``VectorsInput``."""


@dataclass(frozen=True)
class ImagesInput:
    """Colour, size and scale of the images that a model takes; ``Preprocess`` has the fields' meanings."""

    takes_vectors: ClassVar[bool] = False

    size: int | tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    colour: Colour = "rgb"
    resize: int | None = None
    interpolation: Interpolation = "bilinear"
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        if np.isscalar(self.mean) or np.isscalar(self.std):
            raise HoldfastError("preprocess: mean and std must be lists of numbers, one per channel")
        size = (self.size, self.size) if isinstance(self.size, int) else tuple(self.size)
        for name, value in (("size", size), ("mean", tuple(self.mean)), ("std", tuple(self.std))):
            object.__setattr__(self, name, value)  # lists, as JSON gives them, become tuples: equal and hashable
        if self.colour not in MODES:
            raise unknown_name("colour", self.colour, MODES)
        if self.interpolation not in RESAMPLING:
            raise unknown_name("interpolation", self.interpolation, RESAMPLING)
        if len(size) != 2 or not all(type(side) is int and side > 0 for side in size):
            raise HoldfastError(f"preprocess: size must be one or two positive whole numbers, got {self.size!r:.80}")
        if max(size) > MOST_SIDE or size[0] * size[1] > MOST_INPUT_PIXELS:
            most = f"at most {MOST_SIDE} a side and {MOST_INPUT_PIXELS} pixels"
            raise HoldfastError(f"preprocess: size {self.size!r:.80} is too large; {most}")
        whole_number(self.max_pixels, "preprocess: max_pixels", 1, MOST_PIXELS)
        if self.resize is not None:
            whole_number(self.resize, "preprocess: resize", 1, 2 * MOST_SIDE)
        if self.resize is not None and self.resize < min(size):
            raise HoldfastError(f"preprocess: resize {self.resize} is smaller than the crop {size}; raise it")
        if len(self.mean) != self.channels or len(self.std) != self.channels:
            raise HoldfastError(f"preprocess: colour {self.colour!r} needs mean and std of {self.channels} numbers")
        if not all(np.isscalar(one) for one in (*self.mean, *self.std)):
            raise HoldfastError("preprocess: mean and std must be lists of numbers")
        if not np.isfinite(self.mean).all() or not (np.isfinite(self.std) & (np.asarray(self.std) > 0)).all():
            raise HoldfastError(f"preprocess: mean must be finite and std positive, got {self.mean} and {self.std}")

    @property
    def channels(self) -> int:
        return 1 if self.colour == "grey" else 3

    @property
    def height_width(self) -> tuple[int, int]:
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.channels, *self.height_width

    @property
    def array_shape(self) -> tuple[int, ...]:
        """Shape of one item of ``arrays``."""
        return *self.height_width, self.channels

    def arrays(self, images: ImagesLike) -> np.ndarray:
        """The images, resized and cropped: uint8 N x H x W x C, N = 1 for one image."""
        check_real(images, "images")
        images = image_sequence(images)
        ready = self.array_shape
        if isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.shape[1:] == ready:
            return np.require(images, requirements=("C", "W"))  # torch warns of arrays that cannot be written to
        stacked = np.empty((len(images), *ready), dtype=np.uint8)
        for i, image in enumerate(images):
            stacked[i] = self._one(image)
        return stacked

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        if not isinstance(value, Mapping):
            raise HoldfastError(f"preprocess: expected an object with size, mean and std, found {value!r}")
        known = {field.name for field in fields(cls)}
        for name in value:
            if name not in known:
                raise unknown_name("preprocess key", name, known)
        try:
            return cls(**value)
        except (TypeError, ValueError, OverflowError) as error:
            raise HoldfastError(f"preprocess: not a valid description ({error})") from error

    def _one(self, image: ImageLike) -> np.ndarray:
        source = _from_array(image) if isinstance(image, np.ndarray) else image
        if not (isinstance(source, str | Path | bytes) or is_picture(source)):
            raise HoldfastError(f"not an image: {type(image).__name__}; give a path, a PIL image or a uint8 array")
        upright = open_image(source, colour=self.colour, max_pixels=self.max_pixels)
        sized = resize_and_crop(upright, self.height_width, resize=self.resize, interpolation=self.interpolation)
        return np.asarray(sized).reshape(*self.height_width, self.channels)


def image_sequence(images: ImagesLike) -> Sequence[ImageLike] | np.ndarray:
    """Images as a sequence that can be sliced; an array N x H x W x C is a sequence of images."""
    if isinstance(images, np.ndarray):
        return images if images.ndim == 4 else [images]
    if isinstance(images, str | Path | bytes) or is_picture(images):
        return [cast("ImageLike", images)]
    if not isinstance(images, Sequence):
        kind = type(images).__name__
        raise HoldfastError(f"images must be paths, PIL images or uint8 arrays N x H x W x C, found {kind}")
    return cast(Sequence[ImageLike], images)


def _from_array(array: np.ndarray) -> Image.Image:
    channels = array.shape[2] if array.ndim == 3 else 1
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or channels not in (1, 3, 4) or array.size == 0:
        found = f"{array.dtype} of shape {array.shape}"
        raise HoldfastError(f"an image array must be uint8, H x W or H x W x C with C = 1, 3 or 4, found {found}")
    return from_array(array[..., 0] if array.ndim == 3 and channels == 1 else array)


@dataclass(frozen=True)
class VectorsInput:
    """Width and scale of the vectors that a model takes; ``VectorInput`` has the fields' meanings."""

    takes_vectors: ClassVar[bool] = True

    width: int
    unit: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.width, int) or isinstance(self.width, bool) or self.width < 1:
            raise HoldfastError(f"vectors: width must be a positive whole number, got {self.width!r}")
        if self.width > MOST_WIDTH:
            raise HoldfastError(f"vectors: width must be at most {MOST_WIDTH}, got {self.width!r:.40}")
        if not isinstance(self.unit, bool):
            raise HoldfastError(f"vectors: unit must be true or false, got {self.unit!r}")

    @property
    def channels(self) -> int:
        return self.width

    @property
    def height_width(self) -> tuple[int, int]:
        return 1, 1

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.width,)

    @property
    def array_shape(self) -> tuple[int, ...]:
        """Shape of one item of ``arrays``."""
        return (self.width,)

    def arrays(self, vectors: Any) -> np.ndarray:
        """Float32 N x ``width`` from an array or a sequence of them, N = 1 for one vector; another width is refused."""
        check_real(vectors, "vectors")
        try:
            if isinstance(vectors, Sequence) and not isinstance(vectors, str | bytes):
                vectors = np.stack([np.asarray(vector) for vector in vectors])
            with np.errstate(over="ignore"):
                found = np.array(vectors).astype(np.float32)
        except (TypeError, ValueError) as error:
            raise HoldfastError(f"vectors must be rows of {self.width} numbers each ({error})") from error
        check_real(np.asarray(vectors), "vectors")
        found = found[None] if found.ndim == 1 else found
        if found.ndim != 2 or found.shape[1] != self.width:
            shape = " x ".join(map(str, found.shape))
            raise HoldfastError(f"this model takes vectors of {self.width} numbers, found an array of {shape}")
        return found

    def to_json(self) -> dict[str, Any]:
        return {"kind": VECTORS_KIND, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        if set(value) != {"kind", "width", "unit"}:
            raise HoldfastError(f"vectors: expected kind, width and unit, found {', '.join(map(str, value))}")
        return cls(value["width"], value["unit"])


ModelInput = ImagesInput | VectorsInput


def model_input_from_json(value: Any) -> ModelInput:
    """The input that ``to_json`` wrote."""
    if isinstance(value, Mapping) and value.get("kind") == VECTORS_KIND:
        return VectorsInput.from_json(value)
    return ImagesInput.from_json(value)
