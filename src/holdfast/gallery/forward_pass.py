"""Forward passes of a gallery's models: on which device, and how much at once."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.encoders import Encoder
from holdfast.encoders.encode_loop import batch_size_for
from holdfast.errors import UnavailableError


@dataclass(frozen=True)
class BatchSizes:
    """How much is done at once.

    added: items of one durable write of ``add``.
    moved: items of one durable write of a backfill or a rollback.
    queries: images of several clients that a service embeds together.
    """

    added: int
    moved: int
    queries: int


_ON_CPU = BatchSizes(added=256, moved=32, queries=32)
# A GPU is idle while a batch is written and while the next one is collected, so batches are larger there.
_ON_GPU = BatchSizes(added=512, moved=256, queries=256)


def batch_sizes(device: torch.device) -> BatchSizes:
    """The sizes for the kind of device that embeds."""
    return _ON_CPU if device.type == "cpu" else _ON_GPU


def images_at_once(encoder: Encoder, device: torch.device) -> int:
    """Images (or vectors that the model takes) of one forward pass; a search by image waits for at most one pass."""
    assert encoder.preprocess is not None  # ``read_candidate`` refuses such models
    return batch_size_for(device, encoder.preprocess.input_shape)


def full_features(encoder: Encoder, images: Tensor, device: torch.device) -> Tensor:
    """Unit features of preprocessed images (N x C x H x W), N x dim on the CPU, computed on ``device``."""
    with enough_memory(device), _NO_TF32.on(device):
        return encoder.encode(images, device=device)


@contextlib.contextmanager
def enough_memory(device: torch.device) -> Iterator[None]:
    """Say in one line that a GPU's memory is full. Other programs may use it too, so the same call may work later."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UnavailableError(
            f"{device}: not enough free memory to embed; stop other programs that use it, or choose another device "
            "(--device cpu; in Python device='cpu')"
        ) from error


class _NoTF32:
    """While any thread is inside, a GPU multiplies float32 numbers as float32 in convolutions.

    torch's default, TF32, keeps 10 bits of each number: the same image then gets another vector with another batch
    size, and scores differ by some 1e-4 from those of the CPU. The setting belongs to the whole process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._convolutions: Any = torch.backends.cudnn.conv  # type: ignore[attr-defined]
        self._inside = 0
        self._before = ""

    @contextlib.contextmanager
    def on(self, device: torch.device) -> Iterator[None]:
        if device.type != "cuda":
            yield
            return
        with self._lock:
            if self._inside == 0:
                self._before = self._convolutions.fp32_precision
                self._convolutions.fp32_precision = "ieee"
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._convolutions.fp32_precision = self._before


_NO_TF32 = _NoTF32()
