"""Training images where the computation is: whole, as they were read, taken by index."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from holdfast.data.images import ImageSet

COPIED_AT_ONCE = 64 * 2**20
"""Bytes taken to the device at a time: a set mapped from disk may be larger than the host's memory."""


class DeviceImages:
    """All images of a set on one device, N x C x H x W in their own dtype; a batch is one gather, with no copy."""

    def __init__(self, images: ImageSet, device: torch.device | str = "cpu") -> None:
        count, height, width, channels = images.images.shape
        dtype = torch.float32 if images.holds_vectors else torch.uint8
        self.pixels = torch.empty((count, channels, height, width), dtype=dtype, device=device)
        rows = max(1, COPIED_AT_ONCE // (height * width * channels * dtype.itemsize))
        for start in range(0, count, rows):
            part = torch.from_numpy(images.images[start : start + rows]).to(device)
            self.pixels[start : start + len(part)] = part.permute(0, 3, 1, 2)
        self.labels = torch.from_numpy(images.labels).to(device)

    @property
    def device(self) -> torch.device:
        return self.pixels.device

    @property
    def height_width(self) -> tuple[int, int]:
        return self.pixels.shape[2], self.pixels.shape[3]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, indices: Tensor) -> Tensor:
        """B x C x H x W for a tensor of B indices on the same device."""
        return self.pixels[indices]

    def source(self, batch: int) -> "DeviceImages":
        """What the steps of a training read their batches from: the images themselves."""
        return self

    def bytes_ahead(self, batch: int) -> int:
        """Device memory that a training with such batches takes beside the images."""
        return 0

    def at(self, indices: Tensor, step: Tensor) -> Tensor:
        """The batch of a step."""
        return self[indices]

    def fed(self, run_step: Callable[[], None], rows: Iterator[np.ndarray], first: int) -> Callable[[], None]:
        """A step that finds its batch: here every batch already is where it is needed."""
        return run_step
