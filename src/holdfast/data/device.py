"""Training images where the computation is: uint8, whole, read by index."""

import numpy as np
import torch
from torch import Tensor

from holdfast.data.images import ImageSet


class DeviceImages:
    """All images of a set on one device as uint8 N x C x H x W; a batch is one gather, with no copy from the host."""

    def __init__(self, images: ImageSet, device: torch.device | str = "cpu") -> None:
        pixels = torch.from_numpy(np.ascontiguousarray(images.images.transpose(0, 3, 1, 2)))
        self.pixels = pixels.to(device)
        self.labels = torch.from_numpy(images.labels).to(device)

    @property
    def device(self) -> torch.device:
        return self.pixels.device

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, indices: Tensor) -> Tensor:
        """uint8 B x C x H x W for a tensor of B indices on the same device."""
        return self.pixels[indices]
