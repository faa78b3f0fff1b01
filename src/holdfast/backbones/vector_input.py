"""What must be done to a vector before a network sees it: the counterpart of ``Preprocess`` for data without pixels."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.backbones.preprocess import Preprocess
from holdfast.errors import HoldfastError

KIND = "vectors"


@dataclass(frozen=True)
class VectorInput:
    """Width and scale of a network's input, for embeddings of text, sound or products.

    width: how many numbers a vector has.
    unit: scale each vector to length 1 first; a zero vector stays zero.

    Where images are kept (on a device, streamed to it) a vector is an image of one pixel with ``width`` channels.
    """

    width: int
    unit: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.width, int) or isinstance(self.width, bool) or self.width < 1:
            raise HoldfastError(f"vectors: width must be a positive whole number, got {self.width!r}")
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

    def __call__(self, vectors: Any) -> Tensor:
        """One vector or a sequence of them -> float32, N x ``width`` (N = 1 for one vector)."""
        return self.normalise(self.many(vectors))

    def many(self, vectors: Any) -> Tensor:
        """Float32 N x ``width`` from a tensor, an array or a sequence of either; another width is refused."""
        try:
            if isinstance(vectors, Sequence) and not isinstance(vectors, str | bytes):
                vectors = np.stack([np.asarray(vector) for vector in vectors])
            found = vectors if isinstance(vectors, Tensor) else torch.from_numpy(np.array(vectors))
        except (TypeError, ValueError) as error:
            raise HoldfastError(f"vectors must be rows of {self.width} numbers each ({error})") from error
        found = found[None] if found.ndim == 1 else found
        if found.ndim != 2 or found.shape[1] != self.width or found.is_complex():
            shape = " x ".join(map(str, found.shape))
            raise HoldfastError(f"this model takes vectors of {self.width} numbers, found an array of {shape}")
        return found.float()

    def stack(self, vectors: Any) -> Tensor:
        """The input of ``normalise``, as ``Preprocess.stack`` gives it for images."""
        return self.many(vectors)

    def normalise(self, vectors: Tensor) -> Tensor:
        """Float32, N x ``width`` or N x ``width`` x 1 x 1 as they are kept -> float32 N x ``width``."""
        flat = vectors.flatten(1)
        if flat.dtype != torch.float32 or flat.shape[1] != self.width:
            found = f"{vectors.dtype} of shape {tuple(vectors.shape)}"
            raise HoldfastError(f"this model takes float32 vectors of {self.width} numbers, found {found}")
        return F.normalize(flat, dim=1) if self.unit else flat

    def to_json(self) -> dict[str, Any]:
        return {"kind": KIND, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "VectorInput":
        if set(value) != {"kind", "width", "unit"}:
            raise HoldfastError(f"vectors: expected kind, width and unit, found {', '.join(map(str, value))}")
        return cls(value["width"], value["unit"])


def input_from_json(value: Any) -> Preprocess | VectorInput:
    """What a saved model does to its input, whichever kind that is."""
    if isinstance(value, Mapping) and value.get("kind") == KIND:
        return VectorInput.from_json(value)
    return Preprocess.from_json(value)
